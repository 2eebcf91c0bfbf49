package vitals

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Links puts addresses on interfaces, and announces them there. The methods report whether something
// has changed.
type Links interface {
	Announce(link string, a netip.Addr) (bool, error)
	Withdraw(link string, a netip.Addr) (bool, error)
}

// place is an address on an interface.
type place struct {
	link    string
	address netip.Addr
}

// addresses are on interfaces while a Balance that asks for it has a usable server.
type addresses struct {
	asked  map[place]map[model.ServiceName]bool // Balances, and whether a server of them is usable
	of     map[model.ServiceName][]place
	is     map[place]bool   // as it was done last
	failed map[place]string // errors, logged once; Run writes them, under Actor.mu
}

func newAddresses() addresses {
	return addresses{
		asked: make(map[place]map[model.ServiceName]bool), of: make(map[model.ServiceName][]place),
		is: make(map[place]bool), failed: make(map[place]string),
	}
}

// retryPause is the pause before an interface that was not usable is tried again.
const retryPause = 2 * time.Second

// hold puts the addresses of a Balance where they belong in its state. Without a link, it has none.
func (a *Actor) hold(name model.ServiceName, s State) {
	var now []place
	if s.Link != "" {
		for _, address := range s.Addresses {
			now = append(now, place{s.Link, address})
		}
	}
	before := a.addresses.of[name]
	if len(now)+len(before) == 0 {
		return
	}
	a.addresses.of[name] = now
	for _, p := range before {
		if !slices.Contains(now, p) {
			delete(a.addresses.asked[p], name)
			a.settle(p)
		}
	}
	for _, p := range now {
		if a.addresses.asked[p] == nil {
			a.addresses.asked[p] = make(map[model.ServiceName]bool)
		}
		a.addresses.asked[p][name] = s.serves()
		a.settle(p)
	}
	if len(now) == 0 {
		delete(a.addresses.of, name)
	}
}

// settle makes an interface have an address, or not.
func (a *Actor) settle(p place) {
	want := false
	for _, usable := range a.addresses.asked[p] {
		want = want || usable
	}
	if is, known := a.addresses.is[p]; known && is == want {
		a.note(p, "")
		return
	}
	if !a.move(p, want) {
		return // it is tried again
	}
	a.note(p, "")
	a.addresses.is[p] = want
	if len(a.addresses.asked[p]) == 0 {
		delete(a.addresses.asked, p)
		delete(a.addresses.is, p)
	}
}

// move puts an address on an interface, or takes it away, and reports whether it is there or not, as
// wanted.
func (a *Actor) move(p place, want bool) bool {
	do, what := a.Links.Withdraw, "an address is withdrawn"
	if want {
		do, what = a.Links.Announce, "an address is announced"
	}
	changed, err := do(p.link, p.address)
	if changed {
		a.Log.Info(what, "address", p.address, "interface", p.link)
	}
	if err == nil {
		return true
	}
	if text := err.Error(); a.addresses.failed[p] != text {
		a.note(p, text)
		a.Log.Error("an address of a Balance cannot be announced or withdrawn", "error", err)
	}
	return changed
}

// note notes an error; empty: there is none any more.
func (a *Actor) note(p place, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text == "" {
		delete(a.addresses.failed, p)
	} else {
		a.addresses.failed[p] = text
	}
}

// Problems says which addresses are not where they should be, and why.
func (a *Actor) Problems() (out []string) {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, text := range a.addresses.failed {
		out = append(out, fmt.Sprintf("%s on interface %s: %s", p.address, p.link, text))
	}
	slices.Sort(out)
	return out
}
