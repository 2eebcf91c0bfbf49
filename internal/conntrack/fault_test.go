package conntrack

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"golang.org/x/sys/unix"
)

// broken is a kernel whose listings and deletions fail as configured.
type broken struct {
	flows     []Flow // listed by every attempt
	listErr   error
	deleteErr error
	listed    func() // called at the end of a listing
	lists     int
	// unanswered is the number of listings of unanswered flows.
	unanswered int
	deleted    []Flow
}

func (k *broken) List(f model.Family, p model.Protocol, each func(Flow)) error {
	if f == model.IPv6 {
		return nil
	}
	k.lists++
	for _, f := range k.flows {
		if f.Protocol == p {
			each(f)
		}
	}
	if k.listed != nil && p == model.UDP {
		k.listed()
	}
	return k.listErr
}

func (k *broken) ListUnanswered(f model.Family, each func(Flow)) error {
	if f == model.IPv6 {
		return nil
	}
	k.unanswered++
	for _, f := range k.flows {
		each(f)
	}
	return k.listErr
}

func (k *broken) Delete(flows []Flow) (int, error) {
	k.deleted = append(k.deleted, flows...)
	return len(flows), k.deleteErr
}

func endpoint(a netip.AddrPort) model.Endpoint {
	return model.Endpoint{Host: &model.Host{Address: a.Addr()}, Port: a.Port()}
}

// routing has frontends with the same endpoints.
func routing(endpoints string, frontends ...string) *model.Routing {
	var serving []model.Endpoint
	for e := range strings.FieldsSeq(endpoints) {
		serving = append(serving, endpoint(addrPort(e)))
	}
	r, choice := &model.Routing{}, &model.Choice{Serving: serving}
	for _, f := range frontends {
		for _, p := range model.Protocols {
			to := addrPort(f)
			r.Routes = append(r.Routes, model.Route{
				Frontend: model.Frontend{Address: to.Addr(), Protocol: p, Port: to.Port()},
				Service:  &model.Service{},
				Choice:   choice,
			})
		}
	}
	return r
}

// checked gives the Services of all routes a health check.
func checked(r *model.Routing) *model.Routing {
	for i := range r.Routes {
		r.Routes[i].Service = &model.Service{Check: &model.Check{}}
	}
	return r
}

func flow(p model.Protocol, dialled, answers string) Flow {
	return Flow{Protocol: p, Client: addr("192.0.2.2"), Dialled: addrPort(dialled), Answers: addrPort(answers), Returns: addrPort("192.0.2.2:20000")}
}

func newCleaner(k Kernel, log *bytes.Buffer, c Config) *Cleaner {
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	return New(k, c)
}

// follower gives a cleaner the first routing whole, and of the next ones what
// has changed.
type follower struct {
	*Cleaner
	last *model.Routing
}

func (f *follower) follow(r *model.Routing) {
	if f.last == nil {
		everything(f.Cleaner, r.Routes, r.NodePortAddresses)
	} else {
		f.Change(changes(f.last.Routes, r.Routes), r.NodePortAddresses)
	}
	f.Clean()
	f.last = r
}

// changes returns those between two states, and frontends that stay as they are.
func changes(before, now []model.Route) (all []model.RouteChange) {
	old := make(map[model.Frontend]*model.Route)
	for i := range before {
		old[before[i].Frontend] = &before[i]
	}
	for i := range now {
		f := now[i].Frontend
		all = append(all, model.RouteChange{Frontend: f, Old: old[f], New: &now[i]})
		delete(old, f)
	}
	for f, route := range old {
		all = append(all, model.RouteChange{Frontend: f, Old: route})
	}
	return all
}

// 9.10: an interrupted listing is taken five times, and used each time; so is one
// for which the kernel lacked memory, or whose end got lost.
func TestInterrupted(t *testing.T) {
	for errno, reason := range map[error]string{unix.EINTR: "interrupted", unix.ENOBUFS: "no buffer space", os.ErrDeadlineExceeded: "timeout"} {
		var log bytes.Buffer
		k := &broken{flows: []Flow{flow(model.UDP, "10.96.0.1:80", "10.0.0.1:80")}, listErr: errno}
		c := newCleaner(k, &log, Config{})
		everything(c, routing("10.0.0.2:80", "10.96.0.1:80").Routes, nil)
		c.Clean()
		if k.lists != 5 || len(k.deleted) != 5 {
			t.Errorf("%v: %d listings, %d deletions, want 5 of each", errno, k.lists, len(k.deleted))
		}
		if !strings.Contains(log.String(), reason) {
			t.Errorf("log %q, want the reason", log.String())
		}
	}
}

// 9.2: routes change while entries are listed. An entry that the new ones make right
// stays, and what they make stale goes with the next cleanup.
func TestChangesWhileListing(t *testing.T) {
	back, leaves := flow(model.UDP, "10.96.0.1:80", "10.0.0.1:80"), flow(model.UDP, "10.96.0.1:80", "10.0.0.2:80")
	k := &broken{flows: []Flow{back, leaves}}
	c := newCleaner(k, &bytes.Buffer{}, Config{})
	everything(c, routing("10.0.0.2:80", "10.96.0.1:80").Routes, nil)
	k.listed = func() {
		k.listed = nil
		c.Still().Lock()
		defer c.Still().Unlock()
		everything(c, routing("10.0.0.1:80", "10.96.0.1:80").Routes, nil)
	}
	c.Clean()
	if len(k.deleted) > 0 {
		t.Errorf("deleted %v, which the present routes want", k.deleted)
	}
	c.Clean()
	if len(k.deleted) != 1 || k.deleted[0] != leaves {
		t.Errorf("deleted %v, want %v alone", k.deleted, leaves)
	}
}

// A change does not wait for a listing.
func TestChangeDoesNotWait(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	k := &broken{listed: func() { close(begun); <-end }}
	c := newCleaner(k, &bytes.Buffer{}, Config{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	everything(c, routing("10.0.0.1:80", "10.96.0.1:80").Routes, nil)
	<-begun
	k.listed = nil
	c.Still().Lock()
	c.Change(changes(nil, routing("10.0.0.2:80", "10.96.0.1:80").Routes), nil)
	c.Still().Unlock()
	close(end)
	stop()
	<-ended
}

// 9.10: another error is given up, logged, and tried again with the next sync,
// though that changes nothing. What was gone by then is still known.
func TestFailure(t *testing.T) {
	for name, test := range map[string]struct {
		*broken
		failures int // of five syncs, of which the last three have something to delete
	}{
		"list":   {&broken{listErr: unix.EPERM}, 5},
		"delete": {&broken{deleteErr: unix.EBUSY}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			k := test.broken
			lists := max(test.failures, 4) // the first sync looks in any case
			var log bytes.Buffer
			k.flows = []Flow{flow(model.UDP, "10.96.0.2:80", "10.0.0.2:80")}
			c := &follower{Cleaner: newCleaner(k, &log, Config{})}
			both, one := routing("10.0.0.2:80", "10.96.0.1:80", "10.96.0.2:80"), routing("10.0.0.2:80", "10.96.0.1:80")
			for _, r := range []*model.Routing{both, both, one, one, one} {
				c.follow(r)
			}
			if k.lists != lists || len(k.deleted) != 3 {
				t.Errorf("%d listings, %d deletions, want %d and one for each sync without the frontend", k.lists, len(k.deleted), lists)
			}
			if n := strings.Count(log.String(), "level=ERROR"); n < test.failures {
				t.Errorf("%d errors are logged, want one for each of %d syncs", n, test.failures)
			}
			k.listErr, k.deleteErr = nil, nil
			for range 3 {
				c.follow(one)
			}
			if k.lists != lists+1 {
				t.Errorf("%d listings, want one more when nothing fails", k.lists)
			}
		})
	}
}

// 9.4 to 9.7, 9.11, 15.1: which entries go.
func TestStale(t *testing.T) {
	const (
		keep = iota
		udp  // only if it is UDP
		gone // if TCP is looked at as well
	)
	before := routing("10.0.0.9:80", "10.96.0.3:80")
	now := routing("10.0.0.1:80 10.0.0.2:80 192.0.2.1:30080", "10.96.0.1:80", "192.0.2.1:30080")
	now.Routes = append(now.Routes, routing("", "10.96.0.2:80").Routes...)
	for _, c := range []struct {
		name, dialled, answers string
		want                   int
	}{
		{"9.4 endpoint serves", "10.96.0.1:80", "10.0.0.2:80", keep},
		{"9.4 endpoint is gone", "10.96.0.1:80", "10.0.0.3:80", gone},
		{"9.5 another port of an endpoint", "10.96.0.1:80", "10.0.0.1:81", gone},
		{"9.5 never translated", "10.96.0.1:80", "10.96.0.1:80", udp},
		{"9.6 no endpoint", "10.96.0.2:80", "10.0.0.1:80", gone},
		{"9.6 no endpoint, never translated", "10.96.0.2:80", "10.96.0.2:80", keep},
		{"9.7 another port of the address", "10.96.0.1:81", "10.0.0.3:80", keep},
		{"9.7 another address", "10.97.0.1:80", "10.0.0.3:80", keep},
		{"9.4 NodePort number elsewhere", "10.0.0.1:30080", "10.0.0.1:30080", keep},
		{"9.11 address is that of a NodePort", "192.0.2.1:30080", "10.0.0.3:80", gone},
		{"9.4 endpoint is the frontend itself", "192.0.2.1:30080", "192.0.2.1:30080", keep},
		{"9.1 frontend is gone", "10.96.0.3:80", "10.0.0.1:80", gone},
		{"9.1 frontend is gone, never translated", "10.96.0.3:80", "10.96.0.3:80", keep},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, tcp := range []bool{false, true} {
				k := &broken{}
				cleaner := &follower{Cleaner: newCleaner(k, &bytes.Buffer{}, Config{TCP: tcp})}
				cleaner.follow(before)
				var want []Flow
				for _, p := range model.Protocols {
					f := flow(p, c.dialled, c.answers)
					k.flows = append(k.flows, f)
					if c.want != keep && p == model.UDP || c.want == gone && p == model.TCP && tcp {
						want = append(want, f)
					}
				}
				cleaner.follow(now)
				slices.SortFunc(k.deleted, func(a, b Flow) int { return int(a.Protocol) - int(b.Protocol) })
				if !slices.Equal(k.deleted, want) {
					t.Errorf("TCP %v: deleted %+v, want %+v", tcp, k.deleted, want)
				}
			}
		})
	}
}

// TestOpening: 9.27. Of Services with a health check, TCP connections that wait for an
// endpoint which is gone are deleted, also when the check goes with it; others stay.
func TestOpening(t *testing.T) {
	opening := flow(model.TCP, "10.96.0.1:80", "10.0.0.3:80")
	opening.Opening = true
	elsewhere := flow(model.TCP, "10.96.0.1:80", "10.0.0.1:80")
	elsewhere.Opening = true
	flows := []Flow{opening, elsewhere, flow(model.TCP, "10.96.0.1:80", "10.0.0.3:80")}
	before, now := "10.0.0.1:80 10.0.0.3:80", "10.0.0.1:80"
	for name, c := range map[string]struct {
		then, now *model.Routing
		want      []Flow
	}{
		"an endpoint goes":   {checked(routing(before, "10.96.0.1:80")), checked(routing(now, "10.96.0.1:80")), []Flow{opening}},
		"the frontend goes":  {checked(routing(before, "10.96.0.1:80")), routing(now), []Flow{opening, elsewhere}},
		"there was no check": {routing(before, "10.96.0.1:80"), routing(now, "10.96.0.1:80"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := &broken{}
			cleaner := &follower{Cleaner: newCleaner(k, &bytes.Buffer{}, Config{})}
			cleaner.follow(c.then)
			k.flows = flows
			if cleaner.follow(c.now); !slices.Equal(k.deleted, c.want) {
				t.Errorf("deleted %+v, want %+v", k.deleted, c.want)
			}
		})
	}
}

// The frontends of a service port share one list, whichever way they come, and
// it is not that of the routes.
func TestFrontendsShareEndpoints(t *testing.T) {
	r := routing("10.0.0.1:80", "10.96.0.1:80", "10.96.0.2:80")
	want := []netip.AddrPort{addrPort("10.0.0.1:80")}
	for name, take := range map[string]func(*Cleaner){
		"everything": func(c *Cleaner) { everything(c, r.Routes, nil) },
		"Change":     func(c *Cleaner) { c.Change(changes(nil, r.Routes), nil) },
	} {
		c := newCleaner(&broken{}, &bytes.Buffer{}, Config{})
		take(c)
		fs := c.known[0].known
		first, second := fs[addrPort("10.96.0.1:80")].serving, fs[addrPort("10.96.0.2:80")].serving
		if !slices.Equal(first, want) || &first[0] != &second[0] {
			t.Errorf("%s: endpoints %v and %v, want one list for both", name, first, second)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for errno, want := range map[error]string{unix.EPERM: "CAP_NET_ADMIN", unix.EINVAL: "nf_conntrack_netlink", unix.EBUSY: "busy"} {
		err := addRemedy(errno)
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q in it", err, want)
		}
	}
}
