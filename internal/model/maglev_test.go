package model

import (
	"net/netip"
	"strings"
	"testing"
)

// TestMaglevSize: 3.47. A table grows only if there are more endpoints than slots.
func TestMaglevSize(t *testing.T) {
	for _, c := range []struct {
		asked         uint32
		endpoints, is int
	}{{0, 2, 1021}, {0, 1021, 1021}, {0, 1022, 2039}, {251, 251, 251}, {251, 252, 509}, {16381, 2, 16381}, {0, 131071, 131071}, {0, 131072, 131071}} {
		s := &Service{Extras: &Extras{MaglevSize: c.asked}}
		if got := s.MaglevSize(c.endpoints); got != c.is {
			t.Errorf("%d endpoints in a table of %d: %d slots, want %d", c.endpoints, c.asked, got, c.is)
		}
	}
}

// TestMaglevNote: 3.47. It says by how much shares differ.
func TestMaglevNote(t *testing.T) {
	for endpoints, want := range map[int]string{
		1: "", 10: "", 11: "1021 slots for 11 endpoints: shares differ by up to 1 %", 102: "1021 slots for 102 endpoints: shares differ by up to 10 %",
		1000: "1021 slots for 1000 endpoints: shares differ by up to 100 %", 1021: "", 1022: "2039 slots for 1022 endpoints: shares differ by up to 100 %",
	} {
		if got := (&Service{}).MaglevNote(endpoints); got != want {
			t.Errorf("%d endpoints: %q, want %q", endpoints, got, want)
		}
	}
}

// TestSmallTable: 3.47. A table with less than ten slots for each endpoint is reported,
// with the remedy, if its scheduler uses it.
func TestSmallTable(t *testing.T) {
	for _, c := range []struct {
		name         string
		service, own Scheduler
		size         uint32
		endpoints    int
		balance      bool
		want         string
	}{
		{"enough", DefaultScheduler, Maglev, 251, 25, false, ""},
		{"too small", DefaultScheduler, Maglev, 251, 26, false, "Service default/web: 251 slots for 26 endpoints: shares differ by up to 11 %; annotate it with nftproxy.dev/maglev-table-size=4093"},
		{"by the port", MaglevPort, RoundRobin, 251, 26, false, "maglev-table-size=4093"},
		{"of a file", Maglev, RoundRobin, 251, 26, true, "set maglevTableSize: 4093"},
		{"not used", RoundRobin, Maglev, 251, 26, false, ""},
		{"one slot each", Maglev, RoundRobin, 0, 1021, false, ""},
		{"by default", DefaultScheduler, Maglev, 0, 103, false, "maglev-table-size=16381"},
		{"the largest", Maglev, RoundRobin, 16381, 1639, false, "16381 slots for 1639 endpoints: shares differ by up to 11 %"},
	} {
		s := &Service{
			Name: ServiceName{"default", "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []ServicePort{{Protocol: TCP, Port: 80}},
			Scheduler: c.service, Extras: &Extras{MaglevSize: c.size}, Balance: c.balance,
		}
		slice := &EndpointSlice{Namespace: "default", Service: "web", Family: IPv4, Ports: []EndpointPort{{Protocol: TCP, Port: 80}}}
		for i := range c.endpoints {
			slice.Hosts = append(slice.Hosts, Host{Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Ready: true, Serving: true})
		}
		r := Resolve(&Snapshot{Services: []*Service{s}, Slices: []*EndpointSlice{slice}}, Config{Scheduler: c.own})
		var got []string
		for _, n := range r.Notices {
			if n.Reason == SmallTable {
				got = append(got, n.String())
			}
		}
		if len(got) > 1 || (c.want == "") != (len(got) == 0) || !strings.Contains(strings.Join(got, ""), c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
