package model

import (
	"fmt"
	"net/netip"
	"testing"
)

// 4.72: what networks of interfaces leave of the ranges of load balancers.
func TestOutside(t *testing.T) {
	links := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/26"), netip.MustParsePrefix("192.0.2.224/28"), netip.MustParsePrefix("2001:db8::/64")}
	for _, c := range []struct{ of, want string }{
		{"203.0.113.0/24", "[203.0.113.0/24]"},
		{"192.0.2.0/24", "[192.0.2.64/26 192.0.2.128/26 192.0.2.192/27 192.0.2.240/28]"},
		{"192.0.2.0/26", "[]"},
		{"192.0.2.8/29", "[]"},
		{"2001:db8::/63", "[2001:db8:0:1::/64]"},
		{"2001:db8::/128", "[]"},
	} {
		if got := fmt.Sprint(Outside(netip.MustParsePrefix(c.of), links)); got != c.want {
			t.Errorf("%s: %s, want %s", c.of, got, c.want)
		}
	}
}

// A network that comes or goes outside of the ranges changes no rule; another one changes the ranges.
func TestLinksChange(t *testing.T) {
	r := NewRouter()
	config := Config{LoadBalancerCIDRs: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}
	r.Configure(config, nil, nil)
	for _, c := range []struct {
		link, want string
		changes    bool
	}{
		{"192.0.2.0/24", "[203.0.113.0/24]", false},
		{"203.0.113.128/25", "[203.0.113.0/25]", true},
		{"203.0.0.0/16", "[]", true},
		{"192.0.2.0/24", "[203.0.113.0/24]", true},
	} {
		config.Links = []netip.Prefix{netip.MustParsePrefix(c.link)}
		_, base := r.Configure(config, nil, nil)
		if got := fmt.Sprint(r.Base().UnlinkedCIDRs); base != c.changes || got != c.want {
			t.Errorf("%s: %s, changes rules: %v, want %s, %v", c.link, got, base, c.want, c.changes)
		}
	}
}
