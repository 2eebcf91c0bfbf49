package explain

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		protocol, target string
		want             Packet
	}{
		{"tcp", "10.96.0.10:80", Packet{Destination: addr("10.96.0.10"), Protocol: model.TCP, Port: 80}},
		{"UDP", "[fd00::10]:53", Packet{Destination: addr("fd00::10"), Protocol: model.UDP, Port: 53}},
		{"sctp", "[::ffff:10.96.0.10]:80", Packet{Destination: addr("10.96.0.10"), Protocol: model.SCTP, Port: 80}},
		{"6", "10.96.0.10:80", Packet{Destination: addr("10.96.0.10"), Protocol: model.TCP, Port: 80}},
		{"icmp", "10.96.0.10", Packet{Destination: addr("10.96.0.10"), Protocol: model.ICMP}},
		{"icmpv6", "fd00::10", Packet{Destination: addr("fd00::10"), Protocol: model.ICMPv6}},
		{"icmpv6", "[fd00::10]", Packet{Destination: addr("fd00::10"), Protocol: model.ICMPv6}},
		{"47", "10.96.0.10", Packet{Destination: addr("10.96.0.10"), Protocol: 47}},
		{"33", "10.96.0.10:80", Packet{Destination: addr("10.96.0.10"), Protocol: 33, Port: 80}},
	} {
		if got, err := Parse(c.protocol, c.target); err != nil || got != c.want {
			t.Errorf("%s %s: %+v, %v, want %+v", c.protocol, c.target, got, err, c.want)
		}
	}
}

// TestParseErrors wants messages that say what is right.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ protocol, target, want string }{
		{"htp", "10.96.0.10:80", "use tcp, udp, sctp, icmp, icmpv6 or a number up to 255"},
		{"256", "10.96.0.10:80", "or a number up to 255"},
		{"-1", "10.96.0.10:80", "or a number up to 255"},
		{"tcp", "10.96.0.10", `has no port: write for example 10.96.0.10:80`},
		{"tcp", "fd00::10", `has no port: write for example [fd00::10]:80`},
		{"tcp", "fd00::10:443", `has no port, or no brackets: write for example [fd00::10:443]:80, or [fd00::10]:443`},
		{"tcp", "web.default:80", "10.96.0.10:80 or [fd00::10]:80; names are not resolved"},
		{"tcp", "10.96.0.10:http", "is not an address with a port"},
		{"tcp", "10.96.0.10:70000", "is not an address with a port"},
		{"tcp", "10.96.0.10:0", "use 1 to 65535"},
		{"tcp", "[fe80::1%eth0]:80", "has a zone"},
		{"icmp", "10.96.0.10:80", "write 10.96.0.10"},
		{"icmp", "web", "10.96.0.10 or fd00::10"},
		{"icmp", "fd00::10", "use icmpv6"},
		{"icmpv6", "10.96.0.10", "use icmp"},
		{"47", "web", "is not an address"},
	} {
		if _, err := Parse(c.protocol, c.target); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.protocol, c.target, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("tcp", "10.96.0.10:80")
	f.Add("icmp", "::1%[")
	f.Fuzz(func(t *testing.T, protocol, target string) {
		p, err := Parse(protocol, target)
		if err == nil && !p.Destination.IsValid() {
			t.Errorf("%q %q: no address and no error", protocol, target)
		}
	})
}

func TestPacketString(t *testing.T) {
	for want, p := range map[string]Packet{
		"tcp 10.96.0.10:80 from 203.0.113.7":       from(t, "203.0.113.7 tcp 10.96.0.10:80"),
		"icmp 10.96.0.10 from 203.0.113.7":         from(t, "203.0.113.7 icmp 10.96.0.10"),
		"icmpv6 fd00::1 from fd01::7":              from(t, "fd01::7 icmpv6 fd00::1"),
		"47 10.96.0.10 from the node":              from(t, "node 47 10.96.0.10"),
		"tcp 10.0.0.1:80 from the node (10.0.0.2)": {Source: addr("10.0.0.2"), FromNode: true, Destination: addr("10.0.0.1"), Protocol: model.TCP, Port: 80},
		"udp 10.0.0.1:80 from 10.128.0.2 on eth0":  {Source: addr("10.128.0.2"), Interface: "eth0", Destination: addr("10.0.0.1"), Protocol: model.UDP, Port: 80},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
