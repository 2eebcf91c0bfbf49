package agent

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
)

// kept has the Services that the kernel has of an earlier run, and that may be in a part of the
// source that was never read.
type kept struct {
	services []model.ServiceName // sorted; their rules stay
	since    time.Time
	lost     map[model.ServiceName]string // what cannot stay of others, and why
	notices  []model.Notice
	version  uint64 // of the notices
}

// start returns the state for all of the router's routes, and the change to them from what
// the kernel holds. Services that may be in a part of the source that was never read stay
// as they are there, and so do quarantined ones, except for frontends that others take over.
func (a *Agent) start() (*render.State, nft.Delta, error) {
	q := &a.quarantine
	wanted := q.wantedRouting()
	if a.own == nil && len(q.services) == 0 {
		a.updateKept(nil, nil)
		q.foreign = false
		rules, delta := render.Start(wanted)
		return rules, delta, nil
	}
	held, err := a.Applier.Held()
	if err != nil {
		return nil, nft.Delta{}, err
	}
	quarantined := q.newCommentFilter()
	found := served.Keep(held, func(comment string) bool {
		return quarantined(comment) || a.own != nil && !plan.NamesOneOf(a.own, comment)
	})
	found.Kept = found.Without(wanted, quarantined)
	rules, delta := render.StartKeeping(wanted, found.Kept)
	q.recordHeld(found, quarantined, wanted)
	if a.own == nil {
		found = nil
	}
	a.updateKept(found, served.OnlyLoadBalancers(held))
	return rules, delta, nil
}

// updateKept updates the report about Services that are kept, and those that cannot be; nil: nothing is.
// balances are the ones that may be Balances.
func (a *Agent) updateKept(found *served.Keeping, balances map[model.ServiceName]bool) {
	var k kept
	if found != nil {
		k = kept{services: found.Services, since: a.kept.since, lost: maps.Clone(found.Lost)}
		for name := range found.Relayed {
			k.lost[name] = "nftproxy relays its connections as its source says, and refuses them without it"
		}
		maps.Copy(k.lost, a.kept.lost) // they are gone since, and not found any more
		maps.DeleteFunc(k.lost, func(name model.ServiceName, _ string) bool { return a.own[name] })
		if k.since.IsZero() {
			k.since = time.Now().Truncate(time.Second)
		}
		k.notices = slices.DeleteFunc(k.keptNotices(balances), func(n model.Notice) bool {
			return a.quarantine.isQuarantined(model.ServiceName{Namespace: n.Object.Namespace, Name: n.Object.Name})
		})
	}
	a.routing.Lock()
	defer a.routing.Unlock()
	if k.version = a.kept.version; !slices.Equal(a.kept.notices, k.notices) {
		k.version++
	}
	a.kept = k
}

func (k *kept) keptNotices(balances map[model.ServiceName]bool) (out []model.Notice) {
	add := func(name model.ServiceName, reason model.Reason, message string) {
		object := name.Object()
		if balances[name] {
			object = name.BalanceObject()
		}
		out = append(out, model.Notice{Object: object, Reason: reason, Message: message})
	}
	for _, name := range k.services {
		if _, lost := k.lost[name]; lost {
			continue
		}
		add(name, model.Kept, fmt.Sprintf("served since %s as an earlier run left it: it may be in the part of the source that cannot be read", k.since.Format(time.RFC3339)))
	}
	for _, name := range slices.SortedFunc(maps.Keys(k.lost), model.ServiceName.Compare) {
		add(name, model.NotKept, "not served as an earlier run left it: "+k.lost[name])
	}
	return out
}

// Kept returns the Services that the kernel serves as an earlier run left them, because what could be
// read of the source does not have them. It is safe for concurrent use.
func (a *Agent) Kept() []model.ServiceName {
	return readRouter(&a.lockedRouter, func(*model.Router) []model.ServiceName { return a.kept.services })
}

// noteOwnServices notes which Services an update is about, while a part of the source was never
// read. Each sync compares all rules then: the kernel also has rules that were not applied
// by this process.
func (a *Agent) noteOwnServices(u *model.Update) {
	if !u.Partial {
		if a.own != nil {
			a.own = nil
			a.Applier.Forget()
		}
		return
	}
	if a.own == nil {
		a.own = make(map[model.ServiceName]bool, len(u.Services))
	}
	for name := range u.Services {
		a.own[name] = true
	}
}
