package report

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// maxBindings is how many clients are read to count those of a Service.
const maxBindings = 1 << 16

// Describe answers with a [api.Description] in JSON, or with the status 404 and an
// object that has the field "error".
func (s *Server) Describe(w http.ResponseWriter, r *http.Request) {
	done := s.answers.Begin(w)
	if done == nil {
		return
	}
	defer done()
	query := r.URL.Query()
	d, err := s.describe(query.Get("service"), query.Get("counts") != "false")
	var unknown *api.UnknownError
	w.Header().Set("Content-Type", "application/json")
	switch {
	case errors.As(err, &unknown):
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(api.Refusal{Error: err.Error()})
	case err != nil:
		s.config.Log.Error("a Service cannot be described", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		_ = terminal.JSON(w, d) // fails if the client is gone
	}
}

// describe describes a Service, with what packets have left in the kernel if counts is
// true.
func (s *Server) describe(question string, counts bool) (*api.Description, error) {
	name, err := Resolve(question, s.config.Names())
	if err != nil {
		return nil, err
	}
	v := s.config.View(name)
	if v == nil { // deleted in between
		return nil, &api.UnknownError{Name: question}
	}
	if c := s.config.Checks; c != nil {
		v.Checked = func(a netip.Addr) (model.CheckResult, bool) { return c.Result(name, a) }
	}
	d := FromView(v)
	d.From = api.FromDaemon
	if s.config.SourceState != nil {
		_, warnings, _ := s.config.SourceState()
		AddWarnings(d, warnings)
	}
	now := time.Now()
	d.Changed = s.history.of(name, now)
	switch last, good := s.history.state(); {
	case last != nil && last.Error != "":
		d.Unsynced = "the last sync failed, so that the kernel may serve an earlier state: nftproxy status"
	case !good:
		d.Unsynced = "there was no sync yet, so that the kernel may serve the state of an earlier run"
	}
	if d.Unsynced != "" {
		d.Notices = append(d.Notices, d.Unsynced)
	}
	if !counts {
		return d, nil
	}
	return d, s.addCounts(d, v)
}

// addCounts adds what packets have left in the kernel.
func (s *Server) addCounts(d *api.Description, v *model.View) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.config.Counted {
		if _, routing := s.observed(); routing != nil {
			if err := s.count(routing); err != nil {
				return err
			}
			AddConnections(d, s.counts.frontends)
		}
		if err := addEndpointCounts(d, s.endpointCounts); err != nil {
			return err
		}
	}
	if err := addLimitDrops(d, s.config.Kernel); err != nil {
		return err
	}
	if v.Service.AffinityTimeout == 0 || s.config.Bindings == nil {
		return nil
	}
	return addClients(d, s.config.Bindings)
}

// addEndpointCounts adds the connections to each endpoint, if they are counted.
func addEndpointCounts(d *api.Description, read func([]model.Frontend) ([]counters.Endpoint, error)) error {
	counts, err := read(FrontendsOf(d))
	if err != nil {
		return err
	}
	sums := make(map[EndpointUse]uint64)
	for _, c := range counts {
		sums[EndpointUse{Frontend: c.Frontend, Endpoint: c.Endpoint}] += c.Connections
	}
	AddEndpointConnections(d, sums)
	return nil
}

// addClients adds the clients that the affinity maps of both families bind.
func addClients(d *api.Description, read func(model.Family, int) ([]*nft.Set, error)) error {
	var sets []*nft.Set
	limited := false // there may be more than were read
	for _, f := range model.Families {
		found, err := read(f, maxBindings)
		if err != nil {
			return err
		}
		limited = limited || slices.ContainsFunc(found, func(s *nft.Set) bool { return len(s.Elements) >= maxBindings })
		sets = append(sets, found...)
	}
	AddClients(d, sets, limited)
	return nil
}
