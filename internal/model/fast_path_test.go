package model

import (
	"errors"
	"net/netip"
	"testing"
)

// 9.29, 9.31: which frontends take the fast path, and why others do not.
func TestNoFastPath(t *testing.T) {
	all := FastPath{Level: FastPathAll}
	frontend := Frontend{Address: netip.MustParseAddr("192.0.2.1"), Protocol: TCP, Port: 80}
	with := func(change func(*Frontend)) Frontend {
		f := frontend
		change(&f)
		return f
	}
	for _, c := range []struct {
		name     string
		node     Config
		frontend Frontend
		extras   Extras
		sources  *Sources
		want     error
	}{
		{"off", Config{}, frontend, Extras{FastPath: UseFastPath}, nil, errFastPathOff},
		{"all", Config{FastPath: all}, frontend, Extras{}, nil, nil},
		{"avoided", Config{FastPath: all}, frontend, Extras{FastPath: AvoidFastPath}, nil, errFastPathAvoided},
		{"not asked for", Config{FastPath: FastPath{Level: FastPathServices}}, frontend, Extras{}, nil, errFastPathUnwanted},
		{"asked for", Config{FastPath: FastPath{Level: FastPathServices}}, frontend, Extras{FastPath: UseFastPath}, nil, nil},
		{"SCTP", Config{FastPath: all}, with(func(f *Frontend) { f.Protocol = SCTP }), Extras{}, nil, errFastPathProtocol},
		{"echo requests", Config{FastPath: all}, Echo(frontend.Address), Extras{}, nil, errFastPathProtocol},
		{"a range", Config{FastPath: all}, with(func(f *Frontend) { f.Last = 90 }), Extras{}, nil, errFastPathRange},
		{"NodePort on several addresses", Config{FastPath: all}, with(func(f *Frontend) { f.Address = Wildcard(IPv6) }), Extras{}, nil, errFastPathAnyNode},
		{"relayed", Config{FastPath: all}, frontend, Extras{Relay: PlainRelay}, nil, errFastPathRelay},
		{"denied clients", Config{FastPath: all}, frontend, Extras{}, &Sources{}, errFastPathClients},
		{"a limit", Config{FastPath: all}, frontend, Extras{Limits: Limits{Connections: 1}}, nil, errFastPathLimits},
		{"closed by the Service", Config{FastPath: all}, frontend, Extras{OnFailure: CloseOnFailure}, nil, errFastPathCloses},
		{"closed by the node", Config{FastPath: FastPath{Level: FastPathAll, Closes: true}}, frontend, Extras{}, nil, errFastPathCloses},
		{"kept by the Service", Config{FastPath: FastPath{Level: FastPathAll, Closes: true}}, frontend, Extras{OnFailure: KeepOnFailure}, nil, nil},
		{"UDP is not closed", Config{FastPath: FastPath{Level: FastPathAll, Closes: true}}, with(func(f *Frontend) { f.Protocol = UDP }), Extras{}, nil, nil},
		{"observed by the node", Config{FastPath: all, Observe: Observe{Level: ObserveServed}}, frontend, Extras{}, nil, errFastPathObserved},
		{"observed by the Service", Config{FastPath: all, Observe: Observe{Level: ObserveRefusals}}, frontend, Extras{Observe: true}, nil, errFastPathObserved},
		{"observed on other nodes", Config{FastPath: all}, frontend, Extras{Observe: true}, nil, nil},
	} {
		r := &Route{Frontend: c.frontend, Service: &Service{Extras: &c.extras}, Sources: c.sources}
		if got := c.node.NoFastPath(r); !errors.Is(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
