package report

import (
	"iter"

	"github.com/nftproxy/nftproxy/bench/results"
)

// records goes through the records of all files.
func records(files []*results.File) iter.Seq[*results.Record] {
	return func(yield func(*results.Record) bool) {
		for _, f := range files {
			for i := range f.Records {
				if !yield(&f.Records[i]) {
					return
				}
			}
		}
	}
}

// latest returns the records that are wanted, by a key. Keys come in the order
// in which they were seen first.
func latest[K comparable](files []*results.File, key func(*results.Record) (K, bool)) (order []K, last map[K]*results.Record) {
	last = make(map[K]*results.Record)
	for r := range records(files) {
		k, ok := key(r)
		if !ok {
			continue
		}
		if last[k] == nil {
			order = append(order, k)
		}
		last[k] = r
	}
	return order, last
}
