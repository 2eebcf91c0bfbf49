package config

import (
	"fmt"
	"strings"
	"testing"
)

// 4.73: the ranges are read like others, and must not make pods or everything unreachable.
func TestLoadBalancerCIDRs(t *testing.T) {
	for _, c := range []struct {
		args, want, problem string
	}{
		{"", "[]", ""},
		{"--load-balancer-cidrs=203.0.113.7/24,2001:db8:1::/64 --load-balancer-cidrs=198.51.100.1/32", "[203.0.113.0/24 2001:db8:1::/64 198.51.100.1/32]", ""},
		{"--load-balancer-cidrs=203.0.113.7", "", `--load-balancer-cidrs: "203.0.113.7" is not a range such as 203.0.113.0/24`},
		{"--load-balancer-cidrs=0.0.0.0/0", "", "--load-balancer-cidrs: 0.0.0.0/0 covers all addresses"},
		{"--load-balancer-cidrs=::/0", "", "--load-balancer-cidrs: ::/0 covers all addresses"},
		{"--load-balancer-cidrs=10.0.0.0/8 --cluster-cidr=10.128.0.0/16", "", "10.0.0.0/8 has addresses of pods (10.128.0.0/16)"},
		{"--load-balancer-cidrs=fd00:1::/64 --cluster-cidr=10.128.0.0/16,fd00::/16", "", "fd00:1::/64 has addresses of pods (fd00::/16)"},
	} {
		got, err := load(t, strings.Fields(c.args)...)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v, want %q", c.args, err, c.problem)
			}
			continue
		}
		if err != nil || fmt.Sprint(got.Node.LoadBalancerCIDRs) != c.want {
			t.Errorf("%s: %v, %v, want %s", c.args, got.Node.LoadBalancerCIDRs, err, c.want)
		}
	}
}
