package probe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

func (t *target) failing(name model.ServiceName) model.FailingCheck {
	sum := sha256.Sum256([]byte(t.how.Value()))
	f := model.FailingCheck{ServiceRef: name.Ref(), Endpoint: t.address, Check: hex.EncodeToString(sum[:12])}
	if t.protocol != 0 {
		f.Protocol = t.protocol.String()
	}
	return f
}

// Failing returns the endpoints that fail, in a fixed order.
func (e *Engine) Failing() (out []model.FailingCheck) {
	e.mu.Lock()
	for _, s := range e.services {
		for _, m := range s.members {
			if !m.target.healthy {
				out = append(out, m.target.failing(s.name))
			}
		}
	}
	e.mu.Unlock()
	slices.SortFunc(out, func(a, b model.FailingCheck) int {
		return cmp.Or(a.ServiceName().Compare(b.ServiceName()), a.Endpoint.Compare(b.Endpoint))
	})
	return out
}

// AddTo implements [feature.Knower].
func (e *Engine) AddTo(k *feature.Known) { k.Failing = e.Failing() }

// Plan implements [feature.Planner].
func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	edited, failing := Mark(s, k.Failing)
	return feature.Planned{Snapshot: edited, Endpoints: failing, State: "failing a health check"}, nil
}

// Mark returns a snapshot as an engine edits it that has these results before its first
// check: of a Service that checks an endpoint in another way now, the result stays, and a
// new one has the result of another Service with the same check. marked has the endpoints that
// fail, for example "10.1.1.2:80 of default/web".
func Mark(s *model.Snapshot, results []model.FailingCheck) (edited *model.Snapshot, marked []string) {
	if len(results) == 0 {
		return s, nil
	}
	e := newEngine(new(feature.Node), nil, slog.New(slog.DiscardHandler))
	s.Edit(e.Edit)
	e.adopt(results)
	edited = s.Edit(e.Edit)
	for _, f := range e.Failing() {
		marked = append(marked, f.Endpoint.String()+" of "+f.ServiceName().String())
	}
	return edited, marked
}

func (e *Engine) adopt(results []model.FailingCheck) {
	e.mu.Lock()
	defer e.mu.Unlock()
	same := make(map[model.FailingCheck][]*target, len(e.targets))
	for _, t := range e.targets {
		f := t.failing(model.ServiceName{})
		same[f] = append(same[f], t)
	}
	now := time.Now()
	for _, f := range results {
		of := f
		of.ServiceRef = model.ServiceRef{}
		for _, t := range same[of] {
			e.set(t, false, now)
		}
		if t := e.services[f.ServiceName()].find(f.Endpoint.Addr()); t != nil {
			e.set(t, false, now)
		}
	}
}
