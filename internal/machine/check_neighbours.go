package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/preflight"
	"github.com/nftproxy/nftproxy/internal/takeover"
)

const ourPriority = nft.PriorityDNAT

func kubeProxyRuns(f *Facts, u Use) (out []Finding) {
	for _, p := range f.Processes {
		switch {
		case p.Name != "kube-proxy":
		case u.BesideAnother:
			out = append(out, okFinding("process %s serves the other Services", p)...)
		default:
			out = append(out, Finding{Level: Warning, Message: fmt.Sprintf("process %s serves Services here", p), Remedy: "the migration guide replaces it without interruption"})
		}
	}
	if len(out) == 0 && !f.AllProcesses {
		return []Finding{{Level: Unseen, Message: "processes outside of this container are not visible here", Remedy: "run in the PID namespace of the node (hostPID)"}}
	}
	return out
}

// CanObserve returns why the kernel cannot do what observing connections needs; nil: it can.
func CanObserve() error {
	families, err := host.System("").Families()
	if err != nil {
		return err
	}
	problems, err := preflight.Check(families, preflight.Use{Observe: true})
	if err != nil {
		return err
	}
	for _, p := range problems {
		if p.Observe {
			return errors.New(p.String())
		}
	}
	return nil
}

func checkObserve(_ *Facts, u Use) []Finding {
	if u.Observe == nil {
		return nil
	}
	if err := u.Observe.Err; err != nil {
		return []Finding{{Level: Warning, Message: u.Words.Text("connections are not observed as --observe asks: " + err.Error()),
			Remedy: "use another kernel, or leave the flag out"}}
	}
	return okFinding("the kernel logs what --observe asks for")
}

// observeGroup looks for another reader of the group to which the rules log.
func observeGroup(f *Facts, u Use) []Finding {
	by, taken := f.LogReaders[u.ObserveGroup]
	switch {
	case u.ObserveGroup == 0:
		return nil
	case f.Hidden[LogGroups] != nil: // which does not matter without a group
		return []Finding{LogGroups.unseenFinding("", f.Hidden[LogGroups])}
	case !taken:
		return okFinding("no other program reads group %d of nflog", u.ObserveGroup)
	}
	who := "another program"
	if by.PID != 0 {
		who = "process " + by.String()
	}
	return []Finding{{Level: Warning, Message: fmt.Sprintf("%s reads group %d of nflog: refused connections are not observed", who, u.ObserveGroup),
		Remedy: "choose another group with --observe-group"}}
}

func kubeProxyRules(f *Facts, u Use) []Finding {
	var found []string
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	for i := range f.Chains {
		switch c := &f.Chains[i]; {
		case c.Table == takeover.KubeProxyTable && c.Name != takeover.MarkerChain:
			add("table %s %s", c.Family, c.Table)
		case c.Hook == NoHook && takeover.IsKubeProxy(c.Name) && (c.Family == "ip" || c.Family == "ip6"):
			add("chains KUBE-* in table %s %s", c.Family, c.Table)
		}
	}
	for _, t := range f.Legacy {
		if t.KubeProxy {
			add("chains KUBE-* in iptables-legacy table %s", t.Name)
		}
	}
	if slices.Contains(f.Interfaces, takeover.IPVSInterface) {
		add("interface %s (IPVS)", takeover.IPVSInterface)
	}
	switch {
	case len(found) == 0:
		return nil
	case u.BesideAnother:
		return okFinding("kube-proxy serves the other Services: %s", strings.Join(found, ", "))
	}
	remedy := "nftproxy cleanup --kube-proxy, once kube-proxy has ended"
	if u.Cluster {
		remedy = "nothing yet: the migration moves kube-proxy off the node first, and nftproxy then removes them"
	}
	return []Finding{{Level: Warning, Message: "rules of kube-proxy: " + strings.Join(found, ", "), Remedy: remedy}}
}

// otherProxies finds network plugins that serve Services themselves, by their
// interfaces.
func otherProxies(f *Facts, _ Use) (out []Finding) {
	for _, p := range []struct {
		link, program, remedy string
		level                 Level
	}{
		{"kube-dummy-if", "kube-router serves Services (interface kube-dummy-if)", "start it with --run-service-proxy=false", Problem},
		{"bpfin.cali", "Calico's eBPF mode serves Services (interface bpfin.cali)", "set bpfEnabled: false in its FelixConfiguration", Problem},
		{"cilium_host", "Cilium may serve Services itself", "set kubeProxyReplacement: false", Warning},
		{"ovn-k8s-mp0", "OVN-Kubernetes serves Services itself", "it needs no other proxy", Warning},
		{"antrea-gw0", "Antrea may serve Services itself", "disable AntreaProxy's proxyAll", Warning},
	} {
		if slices.Contains(f.Interfaces, p.link) {
			out = append(out, Finding{Level: p.level, Message: p.program, Remedy: p.remedy})
		}
	}
	if len(out) == 0 {
		return okFinding("no network plugin serves Services")
	}
	return out
}

const (
	nodeLocalDNS       = "NodeLocal DNSCache"
	nodeLocalInterface = "nodelocaldns"
)

var nodeLocalAddress = netip.MustParseAddr("169.254.20.10")

func hasNodeLocalDNS(f *Facts) bool {
	return slices.Contains(f.Interfaces, nodeLocalInterface) || slices.Contains(f.Addresses, nodeLocalAddress)
}

// allNeighbours are programs that write rules or interfaces, with what to know about each. They are here if a chain belongs
// to them by the names of [writers], or if the process runs.
var allNeighbours = []struct{ name, process, note string }{
	{"Docker", "dockerd", "it may set the policy of FORWARD to DROP when it starts"},
	{"Podman", "", "nothing to set"},
	{"firewalld", "firewalld", "health checks from outside need firewall-cmd --add-port=10256/tcp"},
	{"ufw", "", "endpoints in the host network need ufw allow PORT"},
	{nodeLocalDNS, "", "nothing to set"},
	{hostPorts, "", "a NodePort wins over a host port of the same number"},
	{"Istio", "", "nothing to set"},
	{"Calico", "", "nftablesMode: Auto may need --announce-nftables"},
	{"flannel", "", "nothing to set"},
	{"kindnet", "", "nothing to set"},
	{"Tailscale", "", "nothing to set"},
}

// checkNeighbours names programs that nftproxy was tried beside.
func checkNeighbours(f *Facts, _ Use) (out []Finding) {
	for _, n := range allNeighbours {
		writer := slices.IndexFunc(writers, func(w writer) bool { return w.name == n.name })
		if slices.ContainsFunc(f.Chains, func(c Chain) bool { return c.is(writers[writer].tables, writers[writer].prefixes...) }) ||
			slices.ContainsFunc(f.Processes, func(p host.Process) bool { return p.Name == n.process }) ||
			n.name == nodeLocalDNS && hasNodeLocalDNS(f) {
			out = append(out, Finding{Level: OK, Message: n.name + " is here: " + n.note, Documentation: pageBeside})
		}
	}
	return out
}
