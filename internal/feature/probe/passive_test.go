package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

// passively is a check after which an endpoint is left out for 10 s at first.
var passively = &model.Check{Type: model.CheckPassive, Interval: 10 * time.Second, Failures: 3, Of: 5}

// sample reports outcomes of connections that are opened now: . is one that is answered.
func (l *lab) sample(address, outcomes string) {
	for _, o := range outcomes {
		failure := ""
		if o != '.' {
			failure = "refused"
		}
		l.Sampled(netip.AddrPortFrom(netip.MustParseAddr(address), 8080), failure, time.Now())
	}
	synctest.Wait() // and for the connection that confirms a failure
}

func (l *lab) expect(s model.ServiceState, want string) {
	l.t.Helper()
	if got := l.failing(s); got != want {
		l.t.Errorf("left out: %q, want %q", got, want)
	}
}

// TestPassive: 3.66. So many failures of so many connections leave an endpoint out that refuses one of this machine too;
// nothing else is sent to it. It returns on trial: then one outcome decides, and the time doubles.
func TestPassive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		s := serviceOf("web", passively, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
		l.Edit(name("web"), s)
		if err := l.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.answer("10.0.0.1", refused)
		l.sample("10.0.0.1", "xx...xx...x") // never three of five
		l.expect(s, "")
		if len(l.made) != 0 {
			t.Errorf("checks were made: %v", l.made)
		}
		l.sample("10.0.0.1", "x.x")
		l.expect(s, "10.0.0.1")
		if got := l.after(batchTime); got != "[default/web]" {
			t.Errorf("changes %s", got)
		}
		if r, _ := l.Result(name("web"), netip.MustParseAddr("10.0.0.1")); r.Message != "passive: 3 of the last 5 sampled connections failed, the last one was refused; from this machine: connect: refused" {
			t.Errorf("result %+v", r)
		}
		l.sample("10.0.0.1", "....") // connections from before
		for _, pause := range []time.Duration{10, 20, 40, 80, 160, 320, 320} {
			l.after(pause*time.Second - time.Second)
			l.expect(s, "10.0.0.1")
			l.after(time.Second)
			l.expect(s, "")
			l.sample("10.0.0.1", "x")
			l.expect(s, "10.0.0.1")
		}
		if r, _ := l.Result(name("web"), netip.MustParseAddr("10.0.0.1")); r.Message != "passive: on trial, the first sampled connection was refused; from this machine: connect: refused" {
			t.Errorf("result %+v", r)
		}
		l.after(320 * time.Second)
		l.sample("10.0.0.1", ".xx") // it has passed the trial
		l.expect(s, "")
		l.after(320 * time.Second)
		l.sample("10.0.0.1", ".xxx") // after a good time, it begins again
		l.expect(s, "10.0.0.1")
		l.after(10*time.Second + batchTime)
		l.expect(s, "")
		if want := map[netip.AddrPort]int{netip.MustParseAddrPort("10.0.0.1:8080"): 9}; !maps.Equal(l.made, want) { // one for each time that it was left out
			t.Errorf("checks %v, want %v", l.made, want)
		}
		if got := l.Passive(); !slices.Equal(got, []model.ServiceName{name("web")}) {
			t.Errorf("passive checks of %v", got)
		}
	})
}

// TestPassiveHalf: 3.67. At most half of the endpoints of a family are left out, also if others
// leave, and never the only one.
func TestPassiveHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		s := serviceOf("web", passively, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1")
		l.Edit(name("web"), s)
		for _, a := range []string{"10.0.0.3", "10.0.0.1", "10.0.0.2"} {
			l.answer(a, refused)
			l.sample(a, "xxx")
			l.after(time.Second)
		}
		l.expect(s, "10.0.0.1 10.0.0.3")
		l.Sampled(netip.MustParseAddrPort("[fd00::1]:8080"), "unanswered", time.Now())
		if r, _ := l.Result(name("web"), netip.MustParseAddr("10.0.0.2")); !r.Healthy || !strings.HasSuffix(r.Message, "; it is not left out, because half of the endpoints are") {
			t.Errorf("result %+v", r)
		}
		fewer := serviceOf("web", passively, "10.0.0.1", "10.0.0.3")
		l.expect(fewer, "10.0.0.1")
		l.expect(serviceOf("web", passively, "10.0.0.1"), "")
		if c := l.Counts(); c.Failing != 0 || c.Targets != 1 {
			t.Errorf("counts %+v", c)
		}
		l.sample("10.0.0.1", "xxxxxx")
		l.expect(serviceOf("web", passively, "10.0.0.1"), "")
		l.Edit(name("web"), model.ServiceState{})
		l.sample("10.0.0.1", "x")
		if l.Passive() != nil || len(l.targets)+len(l.passive)+len(l.queue) != 0 {
			t.Errorf("something is kept: %v", l.targets)
		}
	})
}

// TestPassiveAndActive: an endpoint that fails a check begins anew with a passive one, and the other
// way round.
func TestPassiveAndActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		l.answer("10.0.0.1", refused)
		before := serviceOf("web", tcp, "10.0.0.1", "10.0.0.2")
		l.Edit(name("web"), before)
		l.after(time.Second)
		l.expect(before, "10.0.0.1")
		now := serviceOf("web", passively, "10.0.0.1", "10.0.0.2")
		l.expect(now, "")
		l.answer("10.0.0.2", refused)
		l.sample("10.0.0.2", "xxx")
		l.expect(now, "10.0.0.2")
		l.answer("10.0.0.1", healthy)
		l.answer("10.0.0.2", healthy)
		l.Edit(name("web"), before)
		l.after(10 * time.Second)
		l.expect(before, "")
	})
}

// TestPassiveAttack: 3.66. Clients whose connections fail at an endpoint that accepts connections do not keep it out, however
// often they try; and an endpoint that fails is left out also if all connections come from one client.
func TestPassiveAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		s := serviceOf("web", passively, "10.0.0.1", "10.0.0.2")
		l.Edit(name("web"), s)
		for range 360 { // an hour
			l.sample("10.0.0.1", "xxx") // the connection that confirms may end before a fourth one
			if l.expect(s, ""); t.Failed() {
				return
			}
			if got := l.after(10 * time.Second); got != "" {
				t.Errorf("changes %s", got)
			}
		}
		if got := l.made[netip.MustParseAddrPort("10.0.0.1:8080")]; got != 360 {
			t.Errorf("%d connections confirm failures", got)
		}
		if r, _ := l.Result(name("web"), netip.MustParseAddr("10.0.0.1")); r.Message != "passive: 3 of the last 5 sampled connections failed, the last one was refused; it is not left out, because it accepts connections from this machine" {
			t.Errorf("result %+v", r)
		}
		l.answer("10.0.0.1", silent)
		l.sample("10.0.0.1", "xxxxxx")
		l.expect(s, "")
		l.after(confirmTime - time.Millisecond)
		l.expect(s, "")
		l.after(time.Millisecond)
		l.expect(s, "10.0.0.1")
	})
}

// TestPassiveUnconfirmed: 3.66. A failure that this machine cannot confirm leaves no endpoint out: it has no descriptor, a
// connection would reach another endpoint, or does not end. The trial goes on.
func TestPassiveUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.start()
		s := serviceOf("web", passively, "10.0.0.1", "10.0.0.2")
		l.Edit(name("web"), s)
		message := func() string {
			r, _ := l.Result(name("web"), netip.MustParseAddr("10.0.0.1"))
			return r.Message
		}
		l.answer("10.0.0.1", func(context.Context) error { return fmt.Errorf("%w: too many open files", checker.ErrLocal) })
		l.sample("10.0.0.1", "xxx")
		l.expect(s, "")
		if want := "it is not left out: this machine cannot make the check: too many open files"; !strings.HasSuffix(message(), want) {
			t.Errorf("result %q", message())
		}
		end := make(chan struct{})
		l.answer("10.0.0.1", func(context.Context) error { <-end; return errors.New("too late") })
		l.sample("10.0.0.1", "xxxxx")
		l.after(confirmTime + grace)
		if want := "it is not left out: the check does not end"; !strings.HasSuffix(message(), want) {
			t.Errorf("result %q", message())
		}
		l.sample("10.0.0.1", "xxxxx")
		close(end)
		l.after(time.Second)
		l.expect(s, "")
		l.answer("10.0.0.1", refused)
		l.sample("10.0.0.1", "xxx")
		l.expect(s, "10.0.0.1")
		own := serviceOf("own", passively, "10.0.0.3", "10.0.0.4")
		own.Service.ClusterIPs = []netip.Addr{netip.MustParseAddr("10.0.0.3")}
		own.Service.Ports[0].Port = 8080
		l.Edit(name("own"), own)
		l.answer("10.0.0.3", refused)
		l.sample("10.0.0.3", "xxx")
		l.expect(own, "")
		l.Edit(name("own"), model.ServiceState{})
		l.Edit(name("web"), model.ServiceState{})
		l.after(time.Minute)
		if c := l.Counts(); c.Running+c.Waiting+c.Targets != 0 || len(l.queue) != 0 {
			t.Errorf("counts %+v", c)
		}
	})
}
