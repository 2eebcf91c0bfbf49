package names

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// TestManyDomains: 19.7. A name is a bounded number of queries, and a long line hides no servers behind it.
func TestManyDomains(t *testing.T) {
	c := parseConf([]byte("search" + strings.Repeat(" example.com", 10_000) + "\nnameserver 10.0.0.1\n"))
	if all := c.full("app"); len(all) != maxSearch+1 || len(c.servers) != 1 {
		t.Errorf("%d names at %v", len(all), c.servers)
	}
}

// FuzzConf: 19.7. Of any resolv.conf, names are asked for in a bounded number of ways, each with a final dot, at three servers at most.
func FuzzConf(f *testing.F) {
	for _, text := range []string{
		"nameserver 10.0.0.1\nnameserver fe80::1%eth0 # x\nnameserver ::1;\nnameserver 10.0.0.4\nsearch Example.com. b . ..\n",
		"domain a\nsearch\noptions ndots:5\nnameserver\nnameserver x\n", "search " + strings.Repeat("a ", 300), "\xff\x00nameserver\r\n",
	} {
		f.Add([]byte(text), "app")
	}
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		var c conf
		hostile.CheckMemory(t, len(text), 256, func() { c = parseConf(text) })
		if len(c.servers) > maxServers {
			t.Errorf("%d servers", len(c.servers))
		}
		for _, s := range c.servers {
			if !s.Addr().IsValid() || s.Port() != dnsPort {
				t.Errorf("server %s", s)
			}
		}
		all := c.full(name)
		if len(all) > maxSearch+1 {
			t.Errorf("%d names for %q", len(all), name)
		}
		for _, full := range all {
			if !strings.HasSuffix(full, ".") || !strings.HasPrefix(full, strings.TrimSuffix(name, ".")) {
				t.Errorf("%q for %q", full, name)
			}
		}
	})
}
