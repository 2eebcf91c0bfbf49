package vitals

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
)

// step compares the addresses that Balances want with those that the machine has, and does what is due.
func (k *keeper) step(now time.Time) {
	if !k.begun {
		return
	}
	keeps := k.balances.Kept()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.again = time.Time{}
	if err := k.record.read(); err != nil {
		k.log.Warn("the record of announced addresses cannot be read: the kernel's marks count", "error", err)
	}
	addresses, links, err := k.links.List()
	if k.fails(err, now); err != nil {
		return
	}
	for p, is := range addresses {
		if k.states[p] == nil && (is.Marked || k.record.has(p, is)) {
			k.stateOf(p).earlier = true
		}
	}
	asked := k.asked()
	k.listen(asked, links)
	keep := make(map[place]bool)
	for p, s := range k.states {
		is, on := addresses[p]
		link, exists := links[p.Interface]
		_, ours := k.record.known[p]
		ours = ours || on
		s.wanted = asked[p]
		switch {
		case s.wanted:
			k.take(p, s, link, exists, is, on, now)
		case s.earlier && keeps:
		default:
			if _, stays := asked[p]; k.giveUp(p, s, link, actionFor(false, on, is) == feature.RemoveAddress, now) && !stays {
				delete(k.states, p)
			}
			ours = s.failure != ""
		}
		if ours {
			keep[p] = is.Marked
		}
	}
	for name, l := range links {
		k.up[name] = l.Up
	}
	if err := k.record.write(keep); err != nil {
		k.fails(fmt.Errorf("write the record of announced addresses: %w", err), now)
	}
}

// fails notes an error that concerns no address alone; nil: there is none.
func (k *keeper) fails(err error, now time.Time) {
	if err == nil {
		k.failure = ""
		return
	}
	if k.again = now.Add(retryPause); k.failure != err.Error() {
		k.failure = err.Error()
		k.log.Error("announced addresses cannot be compared", "error", err)
	}
}

// listen begins to listen on interfaces, and to follow their changes.
func (k *keeper) listen(asked map[place]bool, links map[string]host.Link) {
	if len(asked) == 0 {
		return
	}
	if !k.following {
		k.following = true
		go k.links.Follow(k.ctx, k.compare)
	}
	for p := range asked {
		name := p.Interface
		if l := links[name]; !l.Up || !l.Shared || k.listening[name] {
			continue
		}
		err := k.links.Listen(k.ctx, name, func(c host.Claim) { k.note(name, c) }, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.listening, name)
			k.compare()
		})
		k.listening[name] = err == nil // announcing has the same error
	}
}

// inUse notes that another machine has an address.
func (k *keeper) inUse(p place, s *state, mac net.HardwareAddr, now time.Time) {
	text := "MAC unknown"
	if mac != nil {
		text = "MAC " + mac.String()
	}
	if s.claimed != text && (mac != nil || s.claimed == "") {
		s.claimed = text
		k.log.Error("another machine has an address of a Balance", "address", p.Address, "interface", p.Interface, "machine", text)
	}
	if s.until = now.Add(2 * max(k.interval, burstPause)); s.there { // it answers each announcement
		return // announcements go on
	}
	s.probes, s.due = 0, now.Add(usedPause)
}

// giveUp removes an address, and reports whether that succeeds.
func (k *keeper) giveUp(p place, s *state, link host.Link, on bool, now time.Time) bool {
	s.there, s.probes, s.announced, s.claimed, s.due = false, 0, 0, "", time.Time{}
	if on {
		if !k.done(p, s, now, "remove", k.links.Remove(link.Index, p.Address)) {
			return false
		}
		k.log.Info("an address is withdrawn", "address", p.Address, "interface", p.Interface)
	}
	s.failure = ""
	return true
}

// done notes an error; it reports whether there is none.
func (k *keeper) done(p place, s *state, now time.Time, what string, err error) bool {
	if err == nil {
		s.failure = ""
		return true
	}
	text := fmt.Sprintf("%s it: %s", what, err)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT) { // no packet sockets
		text += ": " + packetsRemedy
	}
	if s.due = now.Add(retryPause); s.failure != text {
		s.failure = text
		k.log.Error("an address of a Balance cannot be announced or withdrawn", "address", p.Address, "interface", p.Interface, "error", text)
	}
	return false
}

// packetsRemedy grants packet sockets to the service.
const packetsRemedy = `grant CAP_NET_RAW: d=/etc/systemd/system/nftproxy.service.d; mkdir -p $d && ` +
	`printf '[Service]\nCapabilityBoundingSet=CAP_NET_RAW\nRestrictAddressFamilies=AF_PACKET\n' >$d/announce.conf && systemctl daemon-reload && systemctl restart nftproxy`

// take makes a place have its address, and announces it.
func (k *keeper) take(p place, s *state, link host.Link, exists bool, is host.LinkAddress, on bool, now time.Time) {
	due := !s.due.After(now)
	switch {
	case !exists:
		s.there, s.probes = false, 0
		k.done(p, s, now, "add", fmt.Errorf("there is no interface %s", p.Interface))
	case on && is.Failed:
		if s.there = false; k.done(p, s, now, "remove", k.links.Remove(link.Index, p.Address)) {
			k.inUse(p, s, nil, now)
		}
	case on && is.Tentative:
		s.there, s.due = false, now.Add(retryPause) // an event comes earlier
	case on:
		k.keep(p, s, link, now)
	case due || s.there:
		s.there = false
		k.add(p, s, link, now)
	}
}

// add adds an address that no other machine has. The kernel asks for IPv6 addresses itself.
func (k *keeper) add(p place, s *state, link host.Link, now time.Time) {
	if p.Address.Is4() && link.Up && k.listening[p.Interface] && s.probes < probes {
		if k.links.Probe(p.Interface, p.Address) == nil { // else announcing has the error
			s.probes++
			s.due = now.Add(probePause)
			return
		}
	}
	s.probes = 0
	if err := k.record.intend(p); err != nil {
		k.fails(fmt.Errorf("write the record of announced addresses: %w", err), now) // the mark is enough, where there is one
	}
	if k.done(p, s, now, "add", k.links.Add(link.Index, p.Address)) {
		k.log.Info("an address is added", "address", p.Address, "interface", p.Interface)
		s.due = now.Add(retryPause)
		k.compare() // earlier
	}
}

// keep announces an address that is there.
func (k *keeper) keep(p place, s *state, link host.Link, now time.Time) {
	if !s.there || link.Up && !k.up[p.Interface] {
		if !s.there {
			s.claimed = ""
		}
		s.there, s.announced, s.due, s.failure = true, 0, now, ""
	}
	if s.claimed != "" && !s.until.After(now) {
		s.claimed = ""
	}
	if s.due.After(now) {
		return
	}
	if !link.Up {
		k.done(p, s, now, "announce", errors.New("the interface is down, or has no carrier"))
		return
	}
	if s.due = (time.Time{}); !link.Shared {
		s.failure = ""
		return // there is no neighbour
	}
	err := k.links.Announce(p.Interface, p.Address)
	if err == nil && p.Address.Is4() {
		err = k.links.Probe(p.Interface, p.Address) // a machine that claims it answers
	}
	if !k.done(p, s, now, "announce", err) {
		return
	}
	s.announced++
	if s.due = now.Add(burstPause); s.announced >= announcements {
		s.due = now.Add(k.interval)
	}
}
