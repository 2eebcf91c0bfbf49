package model

import (
	"slices"
	"testing"
)

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		node, zone   string
		zones, nodes []string
		text         string
	}{
		{"", "", nil, nil, ""},
		{"n1", "", nil, nil, "n1"},
		{"n1", "a", nil, nil, "n1 in zone a"},
		{"n1", "", []string{"a", "b"}, nil, "n1 for zones [a b] nodes []"},
		{"", "", []string{""}, []string{"n1"}, " for zones [] nodes [n1]"},
		{"", "", []string{"", "a"}, []string{"", ""}, " for zones [ a] nodes [ ]"},
	} {
		p := NewPlace(c.node, c.zone, c.zones, c.nodes)
		if p.Node() != c.node || p.Zone() != c.zone || !slices.Equal(p.ForZones(), c.zones) || !slices.Equal(p.ForNodes(), c.nodes) || p.String() != c.text {
			t.Errorf("%q for %q %q is %q for %q %q, %q", c.node, c.zones, c.nodes, p.Node(), p.ForZones(), p.ForNodes(), p)
		}
		if p != NewPlace(c.node, c.zone, slices.Clone(c.zones), slices.Clone(c.nodes)) {
			t.Errorf("%s differs from itself", p)
		}
		for _, list := range [][]string{c.zones, c.nodes} {
			if n := joinNames(list); n.hasName("a") != slices.Contains(list, "a") || n.hasName("") != slices.Contains(list, "") || (n == "") != (len(list) == 0) {
				t.Errorf("%q is not the list %q", n, list)
			}
		}
	}
	if (Place{}).compare(OnNode("n1")) >= 0 || OnNode("n1").compare(NewPlace("n1", "a", nil, nil)) >= 0 || NewPlace("n1", "", []string{"a"}, nil).compare(OnNode("n1")) <= 0 {
		t.Error("places are not ordered by node, then hints, then zone")
	}
}
