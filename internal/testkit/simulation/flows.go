package simulation

import (
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Flows is connection tracking, which outlives processes. A process reaches it by [Flows.Of].
type Flows struct {
	mu          sync.Mutex
	all         []conntrack.Flow
	next        uint32
	interrupted bool // the next listing is
}

// tracking is connection tracking as one process uses it.
type tracking struct {
	*Flows
	ended func() bool
}

// Of returns connection tracking for a process, which no longer has it when it has ended.
func (f *Flows) Of(ended func() bool) conntrack.Kernel { return tracking{f, ended} }

func (t tracking) each(f func(conntrack.Flow), is func(*conntrack.Flow) bool) error {
	if t.ended() {
		return errEnded
	}
	t.mu.Lock()
	all, interrupted := slices.Clone(t.all), t.interrupted
	t.interrupted = false
	t.mu.Unlock()
	if interrupted {
		all = all[:len(all)/2]
	}
	for i := range all {
		if is(&all[i]) {
			f(all[i])
		}
	}
	if interrupted {
		return unix.EINTR
	}
	return nil
}

// List implements [conntrack.Kernel].
func (t tracking) List(f model.Family, p model.Protocol, each func(conntrack.Flow)) error {
	return t.each(each, func(flow *conntrack.Flow) bool { return model.FamilyOf(flow.Client) == f && flow.Protocol == p })
}

// ListUnanswered implements [conntrack.Kernel].
func (t tracking) ListUnanswered(f model.Family, each func(conntrack.Flow)) error {
	return t.each(each, func(flow *conntrack.Flow) bool { return model.FamilyOf(flow.Client) == f && !flow.Answered })
}

// Delete implements [conntrack.Kernel].
func (t tracking) Delete(flows []conntrack.Flow) (int, error) {
	if t.ended() {
		return 0, errEnded
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.all)
	t.all = slices.DeleteFunc(t.all, func(f conntrack.Flow) bool { return slices.Contains(flows, f) })
	return before - len(t.all), nil
}

// Open adds the flow of a client, unless it has one.
func (f *Flows) Open(client netip.Addr, dialled, answers netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.all, func(o conntrack.Flow) bool { return o.Client == client && o.Dialled == dialled }) {
		return
	}
	f.next++
	f.all = append(f.all, conntrack.Flow{Protocol: model.UDP, Client: client, Dialled: dialled, Answers: answers,
		Returns: netip.AddrPortFrom(client, 40000), ID: f.next, Answered: answers != dialled})
}

// interrupt interrupts the next listing.
func (f *Flows) interrupt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interrupted = true
}

func (f *Flows) list() []conntrack.Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}
