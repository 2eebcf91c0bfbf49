// Package footprint lists what nftproxy leaves on a machine outside of its tables: how each kind is marked,
// what restores it, and what removes it. "nftproxy cleanup" walks the list, which docs/footprint.md prints.
package footprint

import (
	"errors"
	"log/slog"
)

// Kind is a kind of things that nftproxy leaves on a machine, or in an API server.
type Kind struct {
	Name     string
	What     string // it is, and who asks for it
	Mark     string // by which nftproxy knows its own
	Restored string // when it is compared, and what that does
	Removed  string // what removes it
	// Writers are the source files, or folders of them, that make it.
	Writers []string
	// Remove is what "nftproxy cleanup" does. It returns descriptions of what it removed. Nil: nothing,
	// for the reason in Removed.
	Remove func(Scope) (removed []string, err error)
}

// Scope is where things are removed: the network namespace of the calling thread, and this directory.
type Scope struct {
	Runtime string // the runtime directory of the daemon
	Log     *slog.Logger
}

// Remove removes all kinds that "nftproxy cleanup" removes, and continues after a failure.
func Remove(s Scope) (removed []string, err error) {
	for _, k := range Kinds {
		if k.Remove == nil {
			continue
		}
		some, failure := k.Remove(s)
		removed, err = append(removed, some...), errors.Join(err, failure)
	}
	return removed, err
}
