package vitals

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Links are the interfaces of this machine.
type Links interface {
	List() (map[place]host.LinkAddress, map[string]host.Link, error)
	Add(index int, a netip.Addr) error
	Remove(index int, a netip.Addr) error
	Announce(link string, a netip.Addr) error // to the neighbours, once
	Probe(link string, a netip.Addr) error    // asks them for an IPv4 address, once
	// Listen calls claimed when a neighbour claims an address, until it calls ended.
	Listen(ctx context.Context, link string, claimed func(host.Claim), ended func()) error
	// Follow calls changed after each change of an address or interface, until ctx ends.
	Follow(ctx context.Context, changed func())
}

// place is an address on an interface.
type place = model.InterfaceAddress

// keeper keeps addresses on interfaces while a Balance that asks for it has a usable server. Run calls
// its methods, except those that say otherwise.
type keeper struct {
	links    Links
	balances balances
	interval time.Duration // between announcements of an address, after the first ones
	record   record
	log      *slog.Logger
	ctx      context.Context // of Run

	begun     bool // all Balances are known
	following bool
	changed   chan struct{} // something is to be compared

	mu        sync.Mutex                  // guards what follows
	held      map[model.ServiceName]State // Balances that ask for addresses
	states    map[place]*state
	listening map[string]bool
	up        map[string]bool // as listed last
	again     time.Time       // after a failure that concerns no place alone
	failure   string          // the same
}

// state is what is known about a place that is asked for, or that has to be given up.
type state struct {
	earlier   bool      // of an earlier run: no Balance has asked for it yet
	wanted    bool      // when it was compared last
	there     bool      // on the machine, and usable
	probes    int       // since it is wanted and not there
	announced int       // since it is there, or its interface came up
	due       time.Time // when something is to be done
	failure   string
	claimed   string    // another machine has it: its MAC
	until     time.Time // when a claim of a place that is there ends
}

const (
	// retryPause is the pause before what failed is tried again.
	retryPause = 2 * time.Second
	// probes are sent before an IPv4 address is added, probePause apart: RFC 5227 (1.1) waits up to 7 s.
	probes     = 3
	probePause = 250 * time.Millisecond
	// usedPause is the pause before an address that another machine has is tried again.
	usedPause = 5 * time.Second
	// announcements follow each other after burstPause, because one may be lost, then after the interval.
	announcements = 5
	burstPause    = 2 * time.Second
)

func newKeeper(n *feature.Node, b balances, links Links) *keeper {
	return &keeper{
		interval: n.Config.Own.AnnounceInterval, links: links, balances: b, record: record{path: RecordIn(n.RuntimeDirectory)}, log: n.Log, changed: make(chan struct{}, 1),
		held: make(map[model.ServiceName]State), states: make(map[place]*state), listening: make(map[string]bool), up: make(map[string]bool),
	}
}

// begin notes that all Balances are known: addresses that none of them wants are removed from now on.
func (k *keeper) begin() {
	k.begun = true
	k.compare()
}

// hold notes which addresses a Balance asks for, and whether one of its servers is usable.
func (k *keeper) hold(name model.ServiceName, s State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.held[name]
	if len(before.places())+len(s.places()) == 0 {
		return
	}
	if k.held[name] = s; len(s.places()) == 0 {
		delete(k.held, name)
	}
	for _, p := range before.places() {
		k.stateOf(p)
	}
	for _, p := range s.places() {
		k.stateOf(p).earlier = false
	}
	k.compare()
}

// asked returns the places that Balances ask for, and whether one of these Balances has a usable server. The caller holds mu.
func (k *keeper) asked() map[place]bool {
	out := make(map[place]bool)
	for _, s := range k.held {
		for _, p := range s.places() {
			out[p] = out[p] || s.serves()
		}
	}
	return out
}

// stateOf returns the state of a place. The caller holds mu.
func (k *keeper) stateOf(p place) *state {
	if k.states[p] == nil {
		k.states[p] = new(state)
	}
	return k.states[p]
}

// compare has the addresses compared. It is safe for concurrent use.
func (k *keeper) compare() {
	parallel.Signal(k.changed)
}

// note notes what a neighbour on an interface says. It is safe for concurrent use.
func (k *keeper) note(link string, c host.Claim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := place{Interface: link, Address: c.Address}
	if s := k.states[p]; s != nil && s.wanted && !(s.there && c.Probe) {
		k.inUse(p, s, c.MAC, time.Now())
		k.compare()
	}
}

// next returns the time until something is due; negative: nothing is.
func (k *keeper) next(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	var first time.Time
	for _, s := range k.states {
		first = earlier(first, s.due)
	}
	if first = earlier(first, k.again); first.IsZero() {
		return -1
	}
	return max(0, first.Sub(now))
}

// earlier returns the earlier of two times; zero ones do not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// lacks reports whether an address that a Balance asks for is not on the machine, or its interface is down. It is
// safe for concurrent use.
func (k *keeper) lacks(s State) bool {
	all := s.places()
	if len(all) == 0 {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(all, func(p place) bool {
		is := k.states[p]
		return is == nil || !is.there || !k.up[p.Interface]
	})
}

// announced returns the addresses that Balances ask for. It is safe for concurrent use.
func (k *keeper) announced() (out []model.AnnouncedAddress) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p, wanted := range k.asked() {
		a := model.AnnouncedAddress{Address: p.Address, Interface: p.Interface}
		switch s := k.states[p]; {
		case s != nil && s.there && k.up[p.Interface]:
			a.Usable = true
		case !wanted:
			a.Reason = "no server is usable"
		case s == nil:
			a.Reason = "not added yet"
		default:
			a.Reason = cmp.Or(s.failure, s.conflict(), "not added yet")
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b model.AnnouncedAddress) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Interface, b.Interface))
	})
	return out
}

// conflict says which other machine has an address; empty: none.
func (s *state) conflict() string {
	switch {
	case s.claimed == "":
		return ""
	case s.there:
		return fmt.Sprintf("another machine claims it (%s): clients reach one or the other", s.claimed)
	}
	return fmt.Sprintf("not added, because another machine has it (%s)", s.claimed)
}

// problems says which addresses are not where they should be, and why. It is safe for concurrent use.
func (k *keeper) problems() (out []model.Notice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	add := func(reason model.Reason, text string) {
		out = append(out, model.Notice{Object: model.Machine(), Reason: reason, Message: text})
	}
	if k.failure != "" {
		add(model.NotAnnounced, k.failure)
	}
	for p, s := range k.states {
		at := fmt.Sprintf("%s on interface %s", p.Address, p.Interface)
		if s.failure != "" {
			add(model.NotAnnounced, at+": "+s.failure)
		}
		if text := s.conflict(); text != "" {
			add(model.AddressInUse, at+": "+text)
		}
	}
	slices.SortFunc(out, func(a, b model.Notice) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return out
}
