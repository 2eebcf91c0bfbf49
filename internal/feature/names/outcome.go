package names

import (
	"cmp"
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
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

const (
	// firstRetry is the pause after a failed lookup. It doubles up to lastRetry.
	firstRetry = time.Second
	lastRetry  = 10 * time.Second
)

// lookup looks a name up, and notes the result. It returns when the next lookup is due.
func (e *Engine) lookup(ctx context.Context, n *entry) (due time.Time) {
	e.mu.Lock()
	families := n.families()
	e.mu.Unlock()
	r := e.client.lookup(ctx, n.key, families, n.records)
	if ctx.Err() != nil {
		return due
	}
	result := "found"
	if r.err != nil {
		result = "failed"
		if a, found := hostsfile.Read(e.HostsFile)[strings.ToLower(strings.TrimSuffix(n.name, "."))]; found { // where other programs find it
			r.err = fmt.Errorf("%w; the hosts file has it, with %s, and is not read: write the address in place of the name", r.err, a)
		}
	}
	e.lookups.WithLabelValues(result).Inc()
	e.note(n, e.ownOf(n, r.records), &r)
	return time.Now().Add(e.wait(n, r))
}

// noteResult notes the result of a lookup, and reports whether the records have changed.
func (e *Engine) noteResult(n *entry, r result) (changed bool) {
	now := time.Now()
	switch {
	case r.err == nil && n.err != nil:
		e.objects.Info("name of servers found again", "name", n.name, "after", now.Sub(n.since).Round(time.Second))
	case r.err != nil && (n.err == nil || n.err.Error() != r.err.Error()):
		e.objects.Warn("name of servers not found; its last addresses stay", "name", n.name, "error", r.err, "stay", texts(n.records, nil))
	}
	switch {
	case r.err == nil:
		n.fails, n.since = 0, time.Time{}
	case n.err == nil:
		n.fails, n.since = 1, now
	default:
		n.fails++
	}
	n.err, n.dropped, n.refused = r.err, r.dropped, r.refused
	if slices.Equal(n.records, r.records) {
		return false
	}
	e.objects.Info("servers of a name changed", "name", n.name, "added", texts(r.records, n.records), "removed", texts(n.records, r.records))
	n.records = r.records
	parallel.Signal(e.unsaved)
	return true
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

// ownRecords are records of a name that are frontends of this node, with the Services of the frontends.
type ownRecords = map[ownRecord]model.ServiceName

// ownRecord is a record for a user of its name.
type ownRecord struct {
	user model.ServiceName
	model.NamedAddress
}

// ownOf returns the records of a name that are frontends of this node: our rules would not
// forward packets again that they have sent there.
func (e *Engine) ownOf(n *entry, records []record) ownRecords {
	users := make(map[model.ServiceName]*model.Extras)
	e.mu.Lock()
	for name := range n.users {
		if s := e.services[name]; s != nil && s.given.Service != nil {
			users[name] = s.given.Service.Extra()
		}
	}
	e.mu.Unlock()
	out := make(ownRecords)
	for name, x := range users {
		for _, r := range records {
			if owner, own := e.ownerOf(x, n.key, r); own {
				out[ownRecord{name, r.NamedAddress}] = owner
			}
		}
	}
	return out
}

// ownerOf returns the Service of this node that has a record of a name as a frontend, at a port of a user of the name.
func (e *Engine) ownerOf(x *model.Extras, k key, r record) (model.ServiceName, bool) {
	var ports []model.EndpointPort
	for i := range x.Names {
		if n := &x.Names[i]; keyOf(n) == k {
			for _, p := range n.Ports {
				ports = append(ports, model.EndpointPort{Protocol: p.Protocol, Port: cmp.Or(r.Port, p.Port)})
			}
		}
	}
	for _, p := range x.Ranges {
		ports = append(ports, model.EndpointPort{Protocol: p.Protocol, Port: cmp.Or(p.Target, p.Port)})
	}
	for _, p := range ports {
		if at, own := e.Node.Serving().PortOf(model.Frontend{Address: r.Address, Protocol: p.Protocol, Port: p.Port}); own {
			return at.Service, true
		}
	}
	return model.ServiceName{}, false
}

// noteOwn notes the records of a name that are frontends, and reports whether they are the same.
func (e *Engine) noteOwn(n *entry, own ownRecords) (same bool) {
	same = maps.Equal(n.own, own)
	if n.own = own; same {
		return true
	}
	for o, owner := range own {
		e.objects.Error("a name of servers has an address that is served here: it is left out, because connections would come back to this machine",
			"name", n.name, "address", o.Address, "service", o.user, "owner", owner)
	}
	return false
}

// message returns what is wrong with a name; empty: nothing.
func (n *entry) message(now time.Time) string {
	switch {
	case n.err != nil:
		stay := "; it has no known address"
		if len(n.records) > 0 {
			stay = "; its last addresses stay: " + terminal.List(texts(n.records, nil), 3)
		}
		return fmt.Sprintf("%v, for %s%s", n.err, now.Sub(n.since).Round(time.Second), stay)
	case len(n.own) > 0:
		first := slices.SortedFunc(maps.Keys(n.own), func(a, b ownRecord) int { return cmp.Or(a.Address.Compare(b.Address), a.user.Compare(b.user)) })[0]
		return fmt.Sprintf("its address %s is one that %s serves on this machine, and is left out: connections would come back; let the name have addresses of servers", first.Address, n.own[first])
	case n.dropped > 0:
		return fmt.Sprintf("it has more addresses than are used: %d are left out", n.dropped)
	case n.refused > 0:
		return fmt.Sprintf("%d of its addresses are loopback, multicast or link-local ones, which no server can have: they are left out", n.refused)
	}
	return ""
}
