package model

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// shares returns the share of each chosen endpoint in percent, for example "1:50 2:25 4:25".
func shares(chosen []Endpoint) string {
	total := 0
	for _, e := range chosen {
		total += e.Weight()
	}
	var out []string
	for _, e := range chosen {
		out = append(out, fmt.Sprintf("%d:%.0f", e.Host.Address.As4()[3], 100*float64(e.Weight())/float64(total)))
	}
	return strings.Join(out, " ")
}

// TestZoneFloor is table 3-D: the cluster set of a Service with a zone floor, and what is
// said about it.
func TestZoneFloor(t *testing.T) {
	const three = "R1(in:za) R2(in:zb) R3(in:zc)"
	const hinted = "R1(in:za,z:za) R2(in:zb,z:zb) R3(in:zb,z:zb) R4(in:zc,z:zc)"
	for _, c := range []struct {
		name            string
		floor           uint32
		zone, endpoints string
		want, said      string
	}{
		{"a", 33, "za", three, "1:100", "zone za alone: 1 of 3 ready endpoints (33.3 %), floor 33 %"},
		{"b", 34, "za", three, "1:98 2:1 3:1", "2 % of the connections go to other zones: zone za has 1 of 3 ready endpoints (33.3 %), below the floor of 34 %"},
		{"c", 50, "za", "R1(in:za) R2(in:zb) R3(in:zb) R4(in:zc)", "1:50 2:17 3:17 4:17", "50 % of the connections go to other zones: zone za has 1 of 4 ready endpoints (25 %), below the floor of 50 %"},
		{"d", 100, "za", "R1(in:za) R2(in:zb) R3(in:zb) R4", "1:25 2:25 3:25 4:25", "75 % of the connections go to other zones: zone za has 1 of 4 ready endpoints (25 %), below the floor of 100 %"},
		{"e none in the zone", 33, "zd", three, "1:33 2:33 3:33", "all connections go to other zones: zone zd has 0 of 3 ready endpoints, below the floor of 33 %"},
		{"f the node has no zone", 33, "", three, "1:33 2:33 3:33", "not used: the zone of this node is not known; floor 33 %"},
		{"g endpoints have none", 1, "za", "R1 R2", "1:50 2:50", "all connections go to other zones: zone za has 0 of 2 ready endpoints, below the floor of 1 %"},
		{"h one zone", 100, "za", "R1(in:za) R2(in:za)", "1:50 2:50", "zone za alone: 2 of 2 ready endpoints (100 %), floor 100 %"},
		{"i on this node", 50, "za", "R1(@n1) R2(in:zb)", "1:100", "zone za alone: 1 of 2 ready endpoints (50 %), floor 50 %"},
		{"j zone hints", 25, "za", hinted, "1:100", "zone za alone: 1 of 4 ready endpoints (25 %), floor 25 %"},
		{"k zone hints, below", 50, "za", hinted, "1:50 2:17 3:17 4:17", "50 % of the connections go to other zones: zone za has 1 of 4 ready endpoints (25 %), below the floor of 50 %"},
		{"l hints for another zone", 50, "za", "R1(in:za,z:za) R2(in:zb,z:za) R3(in:za,z:zb) R4(in:zb,z:zb)", "1:50 2:50", "zone za alone: 2 of 4 ready endpoints (50 %), floor 50 %"},
		{"m a hint is missing", 50, "za", "R1(in:za,z:za) R2(in:za) R3(in:zb,z:zb) R4(in:zb,z:zb)", "1:50 2:50", "zone za alone: 2 of 4 ready endpoints (50 %), floor 50 %"},
		{"n node hints", 100, "za", "R1(in:za,n:n1,z:za) R2(in:zb,n:n2,z:zb)", "1:100", "not used: topology hints are for this node; floor 100 %"},
		{"o node hints for others", 50, "za", "R1(in:za,n:n3,z:za) R2(in:zb,n:n2,z:zb)", "1:100", "zone za alone: 1 of 2 ready endpoints (50 %), floor 50 %"},
		{"p not ready", 50, "za", "R1(in:za) U2(in:za) ST3(in:za) R4(in:zb)", "1:100", "zone za alone: 1 of 2 ready endpoints (50 %), floor 50 %"},
		{"q terminating", 50, "za", "ST1(in:za) ST2(in:zb) ST3(in:zb)", "1:33 2:33 3:33", "not used: no endpoint is ready; floor 50 %"},
		{"r failing", 50, "za", "R1(in:za) R2(in:za,f) R3(in:zb) R4(in:zb) R5(in:zb)", "1:50 3:17 4:17 5:17", "50 % of the connections go to other zones: zone za has 1 of 4 ready endpoints (25 %), below the floor of 50 %"},
		{"s drained", 50, "za", "R1(in:za) R2(in:za,d) R3(in:zb)", "1:100", "zone za alone: 1 of 2 ready endpoints (50 %), floor 50 %"},
		{"t stands by", 50, "za", "R1(in:za,p1) R2(in:zb) R3(in:zb)", "2:50 3:50", "all connections go to other zones: zone za has 0 of 2 ready endpoints, below the floor of 50 %"},
		{"u weights", 50, "za", "R1(in:za,w:1) R2(in:zb,w:1) R3(in:zb,w:2)", "1:50 2:17 3:33", "50 % of the connections go to other zones: zone za has 1 of 3 ready endpoints (25 % by weight), below the floor of 50 %"},
		{"v weights, enough", 50, "za", "R1(in:za,w:4) R2(in:za,w:1) R3(in:zb,w:3)", "1:80 2:20", "zone za alone: 2 of 3 ready endpoints (62.5 % by weight), floor 50 %"},
		{"w large weights", 50, "za", "R1(in:za,w:65535) R2(in:zb,w:65535) R3(in:zb,w:65535) R4(in:zb,w:65535)", "1:50 2:17 3:17 4:17", "50 % of the connections go to other zones: zone za has 1 of 4 ready endpoints (25 %), below the floor of 50 %"},
		{"x nothing", 50, "za", "", "", "not used: no endpoint is ready; floor 50 %"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, node := &Service{Extras: &Extras{ZoneFloor: c.floor}}, &Node{Name: "n1", Zone: c.zone}
			all := endpoints(t, c.endpoints)
			if got := shares(Choose(s, all, node).Cluster); got != c.want {
				t.Errorf("shares are %q, want %q", got, c.want)
			}
			if got := NewSelection(s, all, node, PolicyCluster).Zone().String(); got != c.said {
				t.Errorf("says %q, want %q", got, c.said)
			}
			local := Choose(s, all, node).Local
			if got, want := numbers(local), numbers(Choose(&Service{}, all, node).Local); got != want || shares(local) != shares(Choose(&Service{}, all, node).Local) {
				t.Errorf("3.63: the local set is %q, want %q", got, want)
			}
			if said := NewSelection(s, all, node, PolicyLocal).Zone().Effect(); said != "not used: policy Local" {
				t.Errorf("policy Local: %s", said)
			}
		})
	}
}

// TestZoneOmission: the reason names the zone of the endpoint, and what the node's zone has.
func TestZoneOmission(t *testing.T) {
	s, node := &Service{Extras: &Extras{ZoneFloor: 30}}, &Node{Name: "n1", Zone: "za"}
	all := endpoints(t, "R1(in:za) R2(in:zb) R3")
	for i, want := range []string{"", "in zone zb; zone za alone: 1 of 3 ready endpoints (33.3 %), floor 30 %", "in no zone; zone za alone: 1 of 3 ready endpoints (33.3 %), floor 30 %"} {
		if got := NewSelection(s, all, node, PolicyCluster).Reason(all[i].Host); got != want {
			t.Errorf("%d: %q, want %q", i+1, got, want)
		}
	}
}

// TestZoneFloorIsSteady: 3.62 and 3.64. The endpoints of a zone never get more than at the
// floor, and the part that leaves the zone grows from nothing, with every endpoint that the
// zone lacks.
func TestZoneFloorIsSteady(t *testing.T) {
	for _, floor := range []uint32{1, 20, 33, 50, 99, 100} {
		const others = 30
		before := 1.0
		for own := 1; own <= 40; own++ {
			var text strings.Builder
			for range own {
				text.WriteString("R(in:za) ")
			}
			text.WriteString(strings.Repeat("R(in:zb) ", others))
			s := &Service{Extras: &Extras{ZoneFloor: floor}}
			r := NewSelection(s, endpoints(t, text.String()), &Node{Zone: "za"}, PolicyCluster).Zone()
			share := float64(own) / (others + float64(own))
			want := max(0, 1-100*share/float64(floor))
			if got := r.Elsewhere(); math.Abs(got-want) > 0.011 && !(want < 0.05 && got < 0.05) || got > before {
				t.Errorf("floor %d %%, %d of %d endpoints: %.3f of the connections leave the zone, want %.3f; with one endpoint less %.3f", floor, own, own+others, got, want, before)
			}
			before = r.Elsewhere()
		}
	}
}

// TestRatio: numbers that are small, and close.
func TestRatio(t *testing.T) {
	for a := uint64(1); a < 3000; a += 7 {
		for b := uint64(1); b <= a; b += 11 {
			p, q := approximateRatio(a, b)
			want := min(float64(a)/float64(b), ZoneShares)
			if got := float64(p) / float64(q); q < 1 || p > ZoneShares || math.Abs(got/want-1) > 0.01 {
				t.Fatalf("%d:%d becomes %d:%d", a, b, p, q)
			}
		}
	}
}
