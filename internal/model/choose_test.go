package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// endpoints reads a short notation: names separated by blanks, each with
// attributes in parentheses: R ready, ST serving and terminating, U unusable;
// zone and node hints as z:NAME and n:NAME; @NODE and in:ZONE where the endpoint is; f: its
// health check fails; p and a digit: its priority; w:NUMBER its weight; d: it is drained.
//
//	R1(z:za,n:n1) ST2(@n1) U3
func endpoints(t *testing.T, text string) []Endpoint {
	t.Helper()
	var out []Endpoint
	for i, field := range strings.Fields(text) {
		name, attributes, _ := strings.Cut(strings.TrimSuffix(field, ")"), "(")
		h := &Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}
		switch strings.TrimRight(name, "0123456789") {
		case "R":
			h.Ready, h.Serving = true, true
		case "ST":
			h.Serving, h.Terminating = true, true
		case "U":
		case "S": // serving, but neither ready nor terminating
			h.Serving = true
		default:
			t.Fatalf("unknown endpoint %q", name)
		}
		var node, zone string
		var zones, nodes []string
		for _, a := range strings.Split(attributes, ",") {
			switch kind, value, _ := strings.Cut(a, ":"); {
			case kind == "z":
				zones = append(zones, value)
			case kind == "in":
				zone = value
			case kind == "w":
				fmt.Sscan(value, &h.Weight)
			case a == "d":
				h.Drain = true
			case kind == "n":
				nodes = append(nodes, value)
			case strings.HasPrefix(a, "@"):
				node = a[1:]
			case strings.HasPrefix(a, "p"):
				h.Priority = a[1] - '0'
			case a == "f":
				h.Failing = true
			}
		}
		h.Place = NewPlace(node, zone, zones, nodes)
		out = append(out, Endpoint{Host: h, Port: 80})
	}
	return out
}

// numbers returns which of the endpoints are chosen, counted from 1.
func numbers(chosen []Endpoint) string {
	var out []string
	for _, e := range chosen {
		out = append(out, fmt.Sprint(e.Host.Address.As4()[3]))
	}
	return strings.Join(out, " ")
}

// TestChooseCluster is table 3-A: the cluster set.
func TestChooseCluster(t *testing.T) {
	const hinted = "R1(z:za,n:n1) R2(z:zb,n:n2) R3(z:zc,n:n3) R4(z:za,n:n4)"
	for _, c := range []struct{ name, node, zone, endpoints, want string }{
		{"a", "n1", "za", "R1(z:za) R2(z:zb) R3(z:zc) R4(z:za)", "1 4"},
		{"b", "n1", "za", "R1(z:za) R2(z:zb) R3 R4(z:za)", "1 2 3 4"},
		{"c", "n1", "za", "U1(z:za) R2(z:zb) R3(z:zc) U4(z:za)", "2 3"},
		{"d no zone", "n1", "", "R1(z:za)", "1"},
		{"d other zone", "n1", "zb", "R1(z:za)", "1"},
		{"e", "n1", "zc", "R1(z:za,z:zb,z:zc) R2(z:zb,z:zc) R3(z:zb,z:zd) R4(z:zc)", "1 2 4"},
		{"f", "n1", "za", hinted, "1"},
		{"g", "n0", "za", hinted, "1 4"},
		{"h", "n1", "za", "R1(z:za,n:n1) R2 R3(z:zc,n:n3) R4(z:za,n:n4)", "1 2 3 4"},
		{"i", "n1", "za", "ST1(z:zb) ST2", "1 2"},
		{"j", "n1", "za", "R1 ST2", "1"},
		{"k", "n1", "za", "U1 U2 S3", ""},
		{"l", "n1", "za", "", ""},
		{"3.13 one node hint is missing", "n1", "za", "R1(z:za,n:n1) R2(z:zb)", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			choice := Choose(&Service{}, endpoints(t, c.endpoints), &Node{Name: c.node, Zone: c.zone})
			if got := numbers(choice.Cluster); got != c.want {
				t.Errorf("chosen are %q, want %q", got, c.want)
			}
			if got := choice.Decide(PolicyCluster).Verdict == Forward; got != (c.want != "") {
				t.Errorf("forwards: %t", got)
			}
		})
	}
}

// TestChooseLocal is table 3-B: the local set, and what policy Local decides.
func TestChooseLocal(t *testing.T) {
	for _, c := range []struct {
		name, endpoints, cluster, local string
		want                            Verdict
	}{
		{"a", "R1(@n2) R2(@n3)", "1 2", "", Drop},
		{"b", "R1(@n1) R2(@n2)", "1 2", "1", Forward},
		{"f", "ST1(@n2) ST2(@n3)", "1 2", "", Drop},
		{"g", "R1(@n2) U2(@n1) ST3(@n1) ST4(@n2)", "1", "3", Forward},
		{"i", "R1(@n1,z:za) R2(@n1,z:zb) R3(@n2,z:zc) R4(@n2,z:za)", "1 4", "1 2", Forward},
		{"j", "", "", "", Reject},
		{"k", "U1(@n2)", "", "", Reject},
		{"3.6 nothing serves, here or there", "U1(@n1) U2(@n2)", "", "", Reject},
		{"2.15 no node is not this node", "R1", "1", "", Drop},
	} {
		t.Run(c.name, func(t *testing.T) {
			choice := Choose(&Service{}, endpoints(t, c.endpoints), &Node{Name: "n1", Zone: "za"})
			if got := numbers(choice.Cluster); got != c.cluster {
				t.Errorf("cluster set is %q, want %q", got, c.cluster)
			}
			if got := numbers(choice.Local); got != c.local {
				t.Errorf("local set is %q, want %q", got, c.local)
			}
			if got := choice.Decide(PolicyLocal).Verdict; got != c.want {
				t.Errorf("policy Local says %s, want %s", got, c.want)
			}
		})
	}
}

// TestAnythingIsCluster proves what Decide relies on: that something usable
// exists anywhere (3.8) exactly when the cluster set is not empty.
func TestAnythingIsCluster(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kinds := []string{"R", "ST", "U", "S"}
	hints := []string{"", "f", "p1", "z:za", "z:zb", "n:n1", "n:n2", "@n1", "@n2"}
	for range 20000 {
		var text []string
		for i := range r.IntN(5) {
			text = append(text, fmt.Sprintf("%s%d(%s,%s)", kinds[r.IntN(len(kinds))], i, hints[r.IntN(len(hints))], hints[r.IntN(len(hints))]))
		}
		all := endpoints(t, strings.Join(text, " "))
		choice := Choose(&Service{}, all, &Node{Name: "n1", Zone: "za"})
		exists := slices.ContainsFunc(all, func(e Endpoint) bool { return e.Host.Ready || e.Host.Serving && e.Host.Terminating })
		if exists != (len(choice.Cluster) > 0) || !exists && len(choice.Local) > 0 {
			t.Fatalf("%q: something exists: %t, cluster set %q, local set %q", text, exists, numbers(choice.Cluster), numbers(choice.Local))
		}
	}
}
