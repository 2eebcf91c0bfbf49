package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestFailing is table 3-C: the sets of endpoints with failing health checks (3.22) and
// priorities (3.23), and the endpoints that keep their connections.
func TestFailing(t *testing.T) {
	for _, c := range []struct {
		name, endpoints         string
		cluster, local, serving string
	}{
		{"a", "R1(@n1) R2(@n1,f) R3(@n2)", "1 3", "1", "1 3"},
		{"b", "R1(@n1,f) R2(@n1,f) R3(@n2,f)", "1 2 3", "1 2", "1 2 3"},
		{"c", "R1(@n1,f) R2(@n2)", "2", "1", "2"},
		{"d", "R1(@n1) R2(@n1,p1) R3(@n2,p2)", "1", "1", "1 2 3"},
		{"e", "R1(@n1,f) R2(@n1,p1) R3(@n2,p2)", "2", "2", "2 3"},
		{"f", "R1(@n1,f) R2(@n1,p1,f) R3(@n2,p2,f)", "1", "1", "1 2 3"},
		{"g", "R1(@n2) R2(@n1,p1)", "1", "2", "1 2"},
		{"h", "R1(@n1,f) ST2(@n1)", "2", "2", "2"},
		{"i", "R1(@n1,p1) ST2(@n1)", "1", "1", "1 2"},
		{"j", "R1(@n1,f) ST2(@n1,f)", "1", "1", "1 2"},
		{"k", "R1(z:za,f) R2(z:zb) R3(z:zb)", "2 3", "", "2 3"},
		{"l", "R1(z:za,p1) R2(z:zb) R3(z:za)", "3", "", "1 2 3"},
		{"m", "R1(z:za) R2(z:za,f) R3(f)", "1", "", "1"},
		{"none is ready", "U1(@n1,f) S2(@n1,f)", "", "", "2"},
		{"a priority that no usable one has", "U1(@n1) R2(@n1,p3) R3(@n1,p7)", "2", "2", "2 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			choice := Choose(&Service{}, endpoints(t, c.endpoints), &Node{Name: "n1", Zone: "za"})
			if cluster, local, serving := numbers(choice.Cluster), numbers(choice.Local), numbers(choice.Serving); cluster != c.cluster || local != c.local || serving != c.serving {
				t.Errorf("cluster set %q, local set %q, serving %q; want %q, %q, %q", cluster, local, serving, c.cluster, c.local, c.serving)
			}
		})
	}
}

// TestRejectAll: 3.22 with whenAllFail: reject. A set is empty if all of its endpoints
// fail, and its connections are dropped if only endpoints elsewhere pass.
func TestRejectAll(t *testing.T) {
	s := &Service{Check: &Check{AllFailing: RejectAll}}
	for _, c := range []struct {
		endpoints                     string
		cluster, local, serving       string
		verdict, verdictOfLocalPolicy Verdict
	}{
		{"R1(@n1,f) R2(@n1)", "2", "2", "2", Forward, Forward},
		{"R1(@n1,f) R2(@n2)", "2", "", "2", Forward, Drop},
		{"R1(@n1,f) R2(@n2,f)", "", "", "", Reject, Reject},
		{"R1(@n1,f) R2(@n1,p1)", "2", "2", "2", Forward, Forward},
	} {
		choice := Choose(s, endpoints(t, c.endpoints), &Node{Name: "n1"})
		if cluster, local, serving := numbers(choice.Cluster), numbers(choice.Local), numbers(choice.Serving); cluster != c.cluster || local != c.local || serving != c.serving {
			t.Errorf("%s: cluster set %q, local set %q, serving %q; want %q, %q, %q", c.endpoints, cluster, local, serving, c.cluster, c.local, c.serving)
		}
		if a, b := choice.Decide(PolicyCluster).Verdict, choice.Decide(PolicyLocal).Verdict; a != c.verdict || b != c.verdictOfLocalPolicy {
			t.Errorf("%s: %s, with policy Local %s; want %s, %s", c.endpoints, a, b, c.verdict, c.verdictOfLocalPolicy)
		}
	}
}

// TestReasonsOfFailing: 3.22, 3.23, in words.
func TestReasonsOfFailing(t *testing.T) {
	all := endpoints(t, "R1(p1,f) R2(p2) R3(p3) ST4(p1) ST5(f) U6(f,p1)")
	var got []string
	for _, o := range LeftOut(&Service{}, all, &Node{Name: "n1"}, PolicyCluster) {
		got = append(got, fmt.Sprint(o.Endpoint.Addr().As4()[3], " ", o.Reason))
	}
	want := []string{
		"1 its health check fails", "3 stands by: endpoints of priority 2 are usable", "4 terminating, and others are ready",
		"5 its health check fails", "6 not ready",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("reasons\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestFailingAndLoadBalancers: 10.20 with health checks. The number is that of endpoints
// that pass; if the checks do not count on any node, they do not count here.
func TestFailingAndLoadBalancers(t *testing.T) {
	for _, c := range []struct {
		failing string // addresses
		want    int
	}{
		{"", 2}, {"10.0.0.1", 1}, {"10.0.0.1 10.0.0.2", 0}, {"10.0.0.3", 2}, {"10.0.0.1 10.0.0.2 10.0.0.3", 2},
	} {
		s := slice("10.0.0.1=ready@node-1 10.0.0.2=ready@node-1 10.0.0.3=ready@node-2", http)
		for i := range s.Hosts {
			s.Hosts[i].Failing = strings.Contains(c.failing, s.Hosts[i].Address.String())
		}
		if n := resolve(web(), s).HealthChecks[0].Endpoints[IPv4]; n != c.want {
			t.Errorf("%q failing: %d endpoints, want %d", c.failing, n, c.want)
		}
	}
}

// TestSizeOfHost: there are more hosts than anything else.
func TestSizeOfHost(t *testing.T) {
	if n, most := unsafe.Sizeof(Host{}), unsafe.Sizeof(netip.Addr{})+unsafe.Sizeof(Place{})+8; n > most {
		t.Errorf("a host takes %d bytes, want at most %d", n, most)
	}
}

// TestDrainedKeepConnections: 9.28. If a Service closes connections to endpoints that fail,
// drained ones keep those of TCP whatever their check says, as long as they serve.
func TestDrainedKeepConnections(t *testing.T) {
	var all []Endpoint
	for i, h := range []Host{
		{Ready: true, Serving: true}, {Ready: true, Serving: true, Failing: true},
		{Ready: true, Serving: true, Failing: true, Drain: true}, {Failing: true, Drain: true},
	} {
		h.Address = netip.AddrFrom4([4]byte{10, 128, 0, byte(i)})
		all = append(all, Endpoint{Host: &h, Port: 80})
	}
	for _, c := range []struct {
		onFailure OnFailure
		protocol  Protocol
		want      []Endpoint
	}{
		{CloseOnFailure, TCP, []Endpoint{all[0], all[2]}}, {CloseOnFailure, UDP, all[:1]},
		{DefaultOnFailure, TCP, all[:1]}, {KeepOnFailure, TCP, all[:1]},
	} {
		s := &Service{Check: &Check{}, Extras: &Extras{OnFailure: c.onFailure}}
		if got := ChoosePort(s, c.protocol, all, &Node{Name: "n1"}).Serving; !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: %v keep their connections, want %v", c.onFailure, c.protocol, got, c.want)
		}
	}
}
