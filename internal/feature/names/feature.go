package names

import (
	"cmp"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/hostsfile"
)

// resolvConf names the servers of DNS of this machine.
const resolvConf = "/etc/resolv.conf"

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Only files have names of servers: an author of Services of an API server could make every node
// ask for any name.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	own := &n.Config.Own
	c := Config{
		Servers: own.NameServers(), ResolvConf: resolvConf, HostsFile: hostsfile.Path, Timeout: own.DNSTimeout, MinTTL: own.DNSMinTTL, MaxTTL: own.DNSMaxTTL,
		Node: n, Log: n.Log,
	}
	if directory := cmp.Or(n.StateDirectory, n.RuntimeDirectory); directory != "" {
		c.State = filepath.Join(directory, FileName)
	}
	return NewEngine(c)
}

// FollowSync implements [feature.Observer]: a name may have an address of a frontend, or no longer.
func (e *Engine) FollowSync(s *feature.Sync) {
	if len(s.Routes) > 0 || s.Compared {
		e.Synced()
	}
}

// Collectors implements [feature.Counter].
func (e *Engine) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		e.lookups,
		feature.Gauge("nftproxy_names", "Names of servers that are looked up in DNS.", func() float64 {
			all, _ := e.Counts()
			return float64(all)
		}),
		feature.Gauge("nftproxy_names_failing", "Names of servers whose last lookup failed; their last addresses stay.", func() float64 {
			_, failing := e.Counts()
			return float64(failing)
		}),
	}
}

func newLookups() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nftproxy_name_lookups_total", Help: "Lookups of names of servers by result: found, or failed.",
	}, []string{"result"})
}

// Leaves implements [feature.Leaver].
func (Kind) Leaves() []feature.Leftover {
	return []feature.Leftover{{
		Name: "names", What: "`names.json` in the runtime directory, without a state directory: the last answers of DNS",
		Mark:     "its name",
		Restored: "written with the next answer",
		Removed:  "`cleanup`",
		Writers:  []string{"internal/feature/names/kept.go"},
		Remove:   func(s feature.Scope) ([]string, error) { return feature.RemoveFile(s.Runtime, FileName) },
	}}
}
