package report

import (
	"errors"
	"net/netip"
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// maxBindings is how many clients are read to count the clients of a Service.
const maxBindings = 1 << 16

// answerDescription answers with an [api.Description].
func (s *Server) answerDescription(query url.Values) (any, error) {
	return s.describe(query.Get("service"), query.Get("counts") != "false")
}

// describe describes a Service, with the bindings and counters that packets have left in the
// kernel if counts is true.
func (s *Server) describe(question string, counts bool) (*api.Description, error) {
	name, err := s.resolve(question)
	if err != nil {
		return nil, s.notSynced(err)
	}
	v := s.config.Agent.View(name)
	if v == nil { // deleted in between
		return nil, &api.UnknownError{Words: s.config.Facts.Words(), Name: question}
	}
	if c := s.config.Checks; c != nil {
		v.Checked = func(a netip.Addr) (model.CheckResult, bool) { return c.Result(name, a) }
	}
	d := FromView(v)
	d.From = api.FromDaemon
	addWarnings(d, s.config.Facts.SourceState().Warnings)
	now := time.Now()
	d.Changed = s.history.of(name, now)
	s.config.Facts.AddToDescription(d, v, now)
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

// resolve returns the Service that a name stands for.
func (s *Server) resolve(name string) (model.ServiceName, error) {
	return api.Names{Named: s.config.Agent.Named, All: s.config.Agent.Names, Words: s.config.Facts.Words}.Resolve(name)
}

// notSynced returns the error about a name that no Service has: before the first sync, it may
// have one.
func (s *Server) notSynced(err error) error {
	var unknown *api.UnknownError
	if _, synced := s.history.state(); synced || !errors.As(err, &unknown) || unknown.Message != "" {
		return err
	}
	return &api.UnknownError{Message: unknown.Words.Sprintf("not synced yet: Service %q is not known so far", unknown.Name)}
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
			addConnections(d, s.counts.frontends)
		}
		if err := addEndpointCounts(d, s.endpointCounts); err != nil {
			return err
		}
	}
	if err := addLimitCounts(d, s.config.Kernel); err != nil {
		return err
	}
	if s.countsRefusals {
		if err := addRefusals(d, s.config.Kernel.Refusals); err != nil {
			return err
		}
	}
	if v.Service.AffinityTimeout == 0 {
		return nil
	}
	return addClients(d, s.config.Kernel.Bindings)
}
