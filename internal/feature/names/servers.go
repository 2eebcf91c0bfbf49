package names

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
)

const (
	dnsPort = 53
	// maxServers is how many servers of resolv.conf count, as in the C library.
	maxServers = 3
	// maxSearch is how many domains of resolv.conf count, each of which is a query for a name: as many as
	// Kubernetes gives a pod.
	maxSearch = 32
	// confPause is the time between two looks at resolv.conf.
	confPause = time.Second
)

// servers are the servers to ask, and the domains of names without a dot: given ones, or the
// ones of a file, which is followed.
type servers struct {
	path string // of the file

	mu     sync.Mutex
	conf   conf
	looked time.Time
	stamp  string // of the file that was read
	first  int    // the server that has answered last
}

type conf struct {
	servers []netip.AddrPort
	search  []string // domains, with a final dot
}

// defaults are what the C library uses without a file.
var defaults = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dnsPort)}

// parseConf reads a resolv.conf. Lines that it does not know have no effect.
func parseConf(text []byte) (c conf) {
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		line, _, _ = strings.Cut(line, ";")
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(words[1]); err == nil && len(c.servers) < maxServers {
				c.servers = append(c.servers, netip.AddrPortFrom(a, dnsPort))
			}
		case "search", "domain": // the last line counts
			c.search = nil
			for _, domain := range words[1:] {
				if domain = strings.Trim(domain, "."); domain != "" && len(c.search) < maxSearch {
					c.search = append(c.search, strings.ToLower(domain)+".")
				}
			}
		}
	}
	return c
}

// current returns the configuration, with the server that has answered last as the first one.
// While the file cannot be read, its last content counts.
func (s *servers) current(now time.Time) conf {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path != "" && now.Sub(s.looked) >= confPause {
		s.looked = now
		s.read()
	}
	c := s.conf
	if len(c.servers) == 0 {
		c.servers = defaults
	}
	if s.first > 0 && s.first < len(c.servers) {
		c.servers = slices.Concat(c.servers[s.first:], c.servers[:s.first])
	}
	return c
}

// read reads the file if it is another one.
func (s *servers) read() {
	info, err := os.Stat(s.path)
	if err != nil {
		return
	}
	stamp := fmt.Sprint(info.ModTime().UnixNano(), info.Size())
	if stamp == s.stamp {
		return
	}
	if text, err := atomicfile.Read(s.path); err == nil {
		s.conf, s.stamp, s.first = parseConf(text), stamp, 0
	}
}

func (s *servers) answered(by netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = max(0, slices.Index(s.conf.servers, by))
}

// full returns the names to ask for, with a final dot: a name without any dot in each of the
// domains, then by itself.
func (c *conf) full(name string) (all []string) {
	if strings.HasSuffix(name, ".") {
		return []string{name}
	}
	if !strings.Contains(name, ".") {
		for _, domain := range c.search {
			all = append(all, name+"."+domain)
		}
	}
	return append(all, name+".")
}
