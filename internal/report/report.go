// Package report makes the documents of api: what a node serves and whether its rules are up
// to date, how a Service is served, live data, and drained endpoints. Where no daemon runs,
// status and description are read from the tables of the kernel.
package report

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// report is a report that is being made.
type report struct {
	api.Status
	balances func(model.ServiceName) bool // whether a Service comes from a Balance; nil: none does
	// mistakes are the mistakes of the source, each with its file, if it names them.
	mistakes []string
	inUse    []netip.AddrPort // endpoints of all frontends, if the report is from the kernel
}

// addresses yields the addresses of all endpoints that take connections, with any filter.
func (r *report) addresses(yield func(netip.Addr) bool) {
	for _, e := range r.inUse {
		if !yield(e.Addr()) {
			return
		}
	}
}

func (r *report) isBalance(name model.ServiceName) bool { return r.balances != nil && r.balances(name) }

// wordsFor returns the words for a Service.
func (r *report) wordsFor(name model.ServiceName) words.Vocabulary {
	return words.Of(r.isBalance(name))
}

// objectOf returns the object that a Service comes from, as problems name it.
func (r *report) objectOf(name model.ServiceName) api.Object {
	return api.Object(name.ObjectAs(r.isBalance(name)))
}

func (r *report) addProblem(of model.ServiceName, reason model.Reason, message string) {
	r.Problems = append(r.Problems, api.Problem{Object: r.objectOf(of), Reason: reason, Message: message})
}

// nameBalances names Balances where others, which know the names of Services alone, have
// problems of Services.
func (r *report) nameBalances() {
	for _, list := range [][]api.Problem{r.Problems, r.Notes} {
		for i := range list {
			if name, ok := list[i].Object.Service(); ok {
				list[i].Object = r.objectOf(name)
			}
		}
	}
}
