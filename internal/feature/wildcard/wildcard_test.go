package wildcard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// machine has interfaces.
type machine struct {
	feature.Machine
	addresses []model.InterfaceAddress
	err       error
	listed    int
	changed   chan func() // of the one who follows
}

func (m *machine) engine() *Engine {
	m.changed = make(chan func(), 1)
	return newEngine(&feature.Node{Machine: m, Log: slog.New(slog.DiscardHandler)})
}

func (m *machine) Addresses() ([]model.InterfaceAddress, error) {
	m.listed++
	return m.addresses, m.err
}

func (m *machine) FollowAddresses(ctx context.Context, changed func()) {
	m.changed <- changed
	<-ctx.Done()
}

func at(link, a string) model.InterfaceAddress {
	return model.InterfaceAddress{Interface: link, Address: netip.MustParseAddr(a)}
}

// on returns a Service with listeners.
func on(listeners ...model.Listener) model.ServiceState {
	return model.ServiceState{Service: &model.Service{
		Name: model.ServiceName{Namespace: "default", Name: "web"}, NoClusterIP: true, Extras: &model.Extras{Listeners: listeners},
	}}
}

func served(e *Engine, s model.ServiceState) string {
	return fmt.Sprint(e.Edit(s.Service.Name, s).Service.External.LoadBalancerIPs)
}

var both = model.Families[:]

// TestListeners: a listener stands for the addresses of the machine, or of an interface, that others
// may reach, and follows them (1.61, 1.62).
func TestListeners(t *testing.T) {
	m := &machine{addresses: []model.InterfaceAddress{
		at("eth0", "192.0.2.10"), at("eth0", "2001:db8::10"), at("eth0", "fe80::1"), at("eth1", "198.51.100.10"), at("lo", "127.0.0.1"), at("lo", "::1"),
	}}
	e := m.engine()
	for _, c := range []struct {
		listener model.Listener
		want     string
	}{
		{model.Listener{Families: both}, "[192.0.2.10 2001:db8::10 198.51.100.10]"},
		{model.Listener{Families: []model.Family{model.IPv6}}, "[2001:db8::10]"},
		{model.Listener{Interface: "eth1", Families: both}, "[198.51.100.10]"},
		{model.Listener{Interface: "lo", Families: both}, "[]"},
		{model.Listener{Interface: "eth2", Families: both}, "[]"},
	} {
		if got := served(e, on(c.listener)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.listener, got, c.want)
		}
	}
	if m.listed != 1 {
		t.Errorf("listed %d times", m.listed)
	}
}

// TestFollow: Services are named when the addresses change, and only then; after an error, the known
// addresses stay.
func TestFollow(t *testing.T) {
	m := &machine{addresses: []model.InterfaceAddress{at("eth0", "192.0.2.10")}}
	e := m.engine()
	s := on(model.Listener{Text: "eth0:80", Interface: "eth0", Families: both})
	names := make(chan []model.ServiceName, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(ctx, func(all ...model.ServiceName) { names <- all })
	}()
	if got := served(e, s); got != "[192.0.2.10]" {
		t.Error(got)
	}
	changed := <-m.changed
	if changed(); len(names) != 0 {
		t.Error("a change without another address")
	}
	m.addresses = append(m.addresses, at("eth0", "192.0.2.11"))
	changed()
	if all := <-names; len(all) != 1 || all[0] != s.Service.Name {
		t.Error(all)
	}
	if got := served(e, s); got != "[192.0.2.10 192.0.2.11]" {
		t.Error(got)
	}
	m.err = errors.New("no memory")
	if changed(); len(names) != 0 || served(e, s) != "[192.0.2.10 192.0.2.11]" {
		t.Error("an error changes something")
	}
	m.err, m.addresses = nil, nil
	changed()
	if served(e, s) != "[]" {
		t.Error("addresses stay")
	}
	if p := e.Problems(time.Now()); len(p) != 1 || !strings.Contains(p[0].Message, "listen eth0:80: there is no interface eth0, or it has no such address") {
		t.Errorf("problems %v", p)
	}
	e.Edit(s.Service.Name, model.ServiceState{})
	if p := e.Problems(time.Now()); len(p) != 0 {
		t.Errorf("problems of a Service that is gone: %v", p)
	}
	cancel()
	<-ended
}

// TestFirstListFails: 1.62. Services that came while addresses could not be listed get them afterwards,
// also if another Service has had them listed in the meantime.
func TestFirstListFails(t *testing.T) {
	for _, meantime := range []bool{false, true} {
		m := &machine{addresses: []model.InterfaceAddress{at("eth0", "192.0.2.10")}, err: errors.New("no memory")}
		e := m.engine()
		s := on(model.Listener{Interface: "eth0", Families: both})
		if got := served(e, s); got != "[]" {
			t.Error(got)
		}
		m.err = nil
		if other := on(model.Listener{Interface: "eth0", Families: both}); meantime {
			other.Service.Name.Name = "other"
			served(e, other)
		}
		if all := e.again(); len(all) != 1 || all[0] != s.Service.Name {
			t.Errorf("listed in the meantime %t: %v get addresses", meantime, all)
		}
		if got := served(e, s); got != "[192.0.2.10]" {
			t.Errorf("listed in the meantime %t: %s", meantime, got)
		}
	}
}
