package names

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/hostsfile"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

const (
	// firstRetry is the pause after a failed lookup. It doubles up to lastRetry.
	firstRetry = time.Second
	lastRetry  = 10 * time.Second
)

// Status is what is known about a name.
type Status struct {
	Name    string
	Records bool // SRV
	// Addresses are the ones in use, sorted.
	Addresses []model.NamedAddress
	// Err is why the last lookup failed, in whole or in part; nil: it did not. Since is when
	// the first of these lookups ended.
	Err   error
	Since time.Time
	// Kept reports that the addresses come from the previous process.
	Kept bool
	// Dropped is how many addresses are too many, Refused how many no server can have.
	Dropped, Refused int
	// Own are addresses that are frontends of this node, with a Service that has one.
	Own map[netip.Addr]model.ServiceName
	// Services are the users, sorted.
	Services []model.ServiceName
}

// lookup looks a name up, and notes the result.
func (e *Engine) lookup(ctx context.Context, n *entry, families []model.Family, before []record, changed func(...model.ServiceName)) {
	r := e.client.lookup(ctx, n.key, families, before)
	if ctx.Err() != nil {
		return
	}
	result := "found"
	if r.err != nil {
		result = "failed"
		if a, found := hostsfile.Read(e.HostsFile)[strings.ToLower(strings.TrimSuffix(n.name, "."))]; found { // where other programs find it
			r.err = fmt.Errorf("%w; the hosts file has it, with %s, and is not read: write the address in place of the name", r.err, a)
		}
	}
	e.lookups.WithLabelValues(result).Inc()
	own := e.ownOf(n, r.records)
	e.mu.Lock()
	users := e.note(n, r, own, time.Now())
	e.mu.Unlock()
	if len(users) > 0 {
		changed(users...)
	}
}

// note notes the result of a lookup, and returns the Services for which it is another one.
func (e *Engine) note(n *entry, r result, own ownRecords, now time.Time) []model.ServiceName {
	n.running = false
	s := &n.status
	if s.Dropped, s.Refused = r.dropped, r.refused; r.err == nil {
		if s.Err != nil {
			e.objects.Info("name of servers found again", "name", n.name, "after", now.Sub(s.Since).Round(time.Second))
		}
		s.Err, s.Since, s.Kept, n.fails = nil, time.Time{}, false, 0
	} else {
		if n.fails++; s.Err == nil {
			s.Since = now
		}
		if s.Err == nil || s.Err.Error() != r.err.Error() {
			e.objects.Warn("name of servers not found; its last addresses stay", "name", n.name, "error", r.err, "stay", texts(n.records, nil))
		}
		s.Err = r.err
	}
	if n.due = now.Add(e.wait(n, r)); n.again {
		n.due, n.again = now, false
	}
	e.wakeFor(n.due)
	if e.names[n.key] != n { // it is gone
		return nil
	}
	same := slices.Equal(n.records, r.records)
	if !same {
		e.objects.Info("servers of a name changed", "name", n.name, "added", texts(r.records, n.records), "removed", texts(n.records, r.records))
		n.records, e.unsaved = r.records, true
		e.wakeFor(time.Time{})
	}
	if e.noteOwn(n, own) && same {
		return nil
	}
	return e.usersOf(n)
}

// wait returns the time until a name is looked up again.
func (e *Engine) wait(n *entry, r result) time.Duration {
	ttl := e.MaxTTL
	if r.ttl != noTTL {
		ttl = min(max(e.MinTTL, time.Duration(r.ttl)*time.Second), e.MaxTTL)
	}
	if r.err == nil {
		return ttl
	}
	pause := min(firstRetry<<min(n.fails-1, 10), lastRetry)
	return min(ttl, pause-pause/10+rand.N(pause/5)) // many names fail together
}

// texts returns the addresses of records that others do not have.
func texts(of, others []record) (out []string) {
	for _, r := range of {
		if !slices.ContainsFunc(others, func(o record) bool { return o.Address == r.Address && o.Port == r.Port }) {
			out = append(out, r.text())
		}
	}
	return out
}

func (r record) text() string {
	return model.EndpointText(netip.AddrPortFrom(r.Address, r.Port))
}

// ownRecords are records of a name that are frontends of this node, by user.
type ownRecords = map[model.ServiceName]map[model.NamedAddress]model.ServiceName

// ownOf returns the records of a name that are frontends of this node: our rules would not
// forward packets again that they have sent there.
func (e *Engine) ownOf(n *entry, records []record) (out ownRecords) {
	if e.Node == nil {
		return nil
	}
	for name, servers := range e.serversOf(n) {
		for _, s := range servers {
			for _, r := range records {
				owner, own := e.ownerOf(&s, r)
				if !own {
					continue
				}
				if out == nil {
					out = make(ownRecords)
				}
				if out[name] == nil {
					out[name] = make(map[model.NamedAddress]model.ServiceName)
				}
				out[name][r.NamedAddress] = owner
			}
		}
	}
	return out
}

// named are the ports of a Service for a name.
type named struct {
	server model.NamedServer
	ranges []model.PortRange
}

// serversOf returns the servers of all users that have a name.
func (e *Engine) serversOf(n *entry) map[model.ServiceName][]named {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[model.ServiceName][]named, len(n.users))
	for name := range n.users {
		s := e.services[name]
		if s == nil || s.given.Service == nil {
			continue
		}
		x := s.given.Service.Extra()
		for i := range x.Names {
			if keyOf(&x.Names[i]) == n.key {
				out[name] = append(out[name], named{x.Names[i], x.Ranges})
			}
		}
	}
	return out
}

// ownerOf returns the Service of this node that has a record as a frontend.
func (e *Engine) ownerOf(s *named, r record) (model.ServiceName, bool) {
	for _, p := range s.server.Ports {
		if r.Port != 0 {
			p.Port = r.Port
		}
		if port, own := e.Node.Serving().PortOf(model.Frontend{Address: r.Address, Protocol: p.Protocol, Port: p.Port}); own {
			return port.Service, true
		}
	}
	for _, p := range s.ranges {
		port := p.Target
		if port == 0 {
			port = p.Port
		}
		if of, own := e.Node.Serving().PortOf(model.Frontend{Address: r.Address, Protocol: p.Protocol, Port: port}); own {
			return of.Service, true
		}
	}
	return model.ServiceName{}, false
}

// noteOwn notes the records of a name that are frontends, and reports whether they are the same.
func (e *Engine) noteOwn(n *entry, own ownRecords) (same bool) {
	same = maps.EqualFunc(n.own, own, maps.Equal)
	if n.own = own; same {
		return true
	}
	for name, records := range own {
		for a, owner := range records {
			e.objects.Error("a name of servers has an address that is served here: it is left out, because connections would come back to this machine",
				"name", n.name, "address", a.Address, "service", name, "owner", owner)
		}
	}
	return false
}

// reviewAll looks at all names again, because frontends of this node may have changed.
func (e *Engine) reviewAll(changed func(...model.ServiceName)) {
	var users []model.ServiceName
	e.mu.Lock()
	all := e.entries()
	e.mu.Unlock()
	for _, n := range all {
		e.mu.Lock()
		records := n.records
		e.mu.Unlock()
		own := e.ownOf(n, records)
		e.mu.Lock()
		if slices.Equal(records, n.records) && !e.noteOwn(n, own) {
			users = append(users, e.usersOf(n)...)
		}
		e.mu.Unlock()
	}
	if len(users) > 0 {
		changed(users...)
	}
}

// message returns what is wrong with a name; empty: nothing.
func (s *Status) message(now time.Time) string {
	stay := "; it has no known address"
	if len(s.Addresses) > 0 {
		var texts []string
		for _, a := range s.Addresses {
			texts = append(texts, record{NamedAddress: a}.text())
		}
		stay = "; its last addresses stay: " + terminal.List(texts, 3)
	}
	switch {
	case s.Err != nil:
		return fmt.Sprintf("%v, for %s%s", s.Err, now.Sub(s.Since).Round(time.Second), stay)
	case len(s.Own) > 0:
		a := slices.SortedFunc(maps.Keys(s.Own), netip.Addr.Compare)[0]
		return fmt.Sprintf("its address %s is one that %s serves on this machine, and is left out: connections would come back; let the name have addresses of servers", a, s.Own[a])
	case s.Dropped > 0:
		return fmt.Sprintf("it has more addresses than are used: %d are left out", s.Dropped)
	case s.Refused > 0:
		return fmt.Sprintf("%d of its addresses are loopback, multicast or link-local ones, which no server can have: they are left out", s.Refused)
	}
	return ""
}
