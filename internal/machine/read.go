package machine

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/preflight"
	"github.com/nftproxy/nftproxy/internal/takeover"
	"github.com/nftproxy/nftproxy/internal/xtables"
)

// Read reads all facts.
func Read() *Facts {
	f := readServing()
	f.readNFTables()
	f.readGroup(Features, f.readFeatures)
	f.readGroup(Routes, f.readRoutes)
	f.Ports = conntrack.NewPorts()
	f.readGroup(ProcessSet, f.readProcesses)
	f.readGroup(LogGroups, f.readLogGroups)
	return f
}

// readServing reads the facts that a running daemon follows, except about nf_tables.
func readServing() *Facts {
	f := readForwarding()
	f.readGroup(IPTables, f.readLegacy)
	f.readGroup(Neighbours, f.readNeighbours)
	f.readGroup(Routes, f.readRules)
	f.Router = kernelRouter{}
	return f
}

// readForwarding reads what decides about forwarding.
func readForwarding() *Facts {
	f := &Facts{Hidden: make(map[Group]error)}
	f.readGroup(Links, f.readLinks)
	f.readGroup(Settings, f.readSettings)
	return f
}

func (f *Facts) readGroup(g Group, read func() error) {
	if err := read(); err != nil {
		f.Hidden[g] = err
	}
}

func (f *Facts) readFeatures() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		f.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	families, err := host.System("").Families()
	if err != nil {
		return err
	}
	problems, err := preflight.Check(families, preflight.Use{})
	if err != nil {
		return err
	}
	for _, p := range problems {
		if errors.Is(p.Answer, unix.EPERM) {
			return errors.New("it needs the capability CAP_NET_ADMIN")
		}
		f.Missing = append(f.Missing, p.String())
	}
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	if f.Ownership, err = conn.Own(); err == nil {
		var owned *kernel.OwnedError
		if owned, err = conn.OwnedByOther(); owned != nil {
			f.Owner = owned.Owner
		}
	}
	return errors.Join(err, conn.Close())
}

// settings reads files below /proc/sys; what does not exist is empty, or zero. It keeps errors.
type settings struct{ errs []error }

func (s *settings) text(name string) string {
	text, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if !errors.Is(err, fs.ErrNotExist) {
		s.errs = append(s.errs, err)
	}
	return strings.TrimSpace(string(text))
}

func (s *settings) number(name string) int {
	text := s.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	s.errs = append(s.errs, err)
	return n
}

func (f *Facts) readSettings() error {
	families, err := host.System("").Families()
	if err != nil {
		return err
	}
	f.Forwarding, f.BridgeNF = make(map[model.Family]Forwarding), make(map[model.Family]bool)
	var s settings
	for _, family := range families {
		forwarding, bridge := "net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"
		if family == model.IPv6 {
			forwarding, bridge = "net/ipv6/conf/all/forwarding", "net/bridge/bridge-nf-call-ip6tables"
		}
		f.Forwarding[family], f.BridgeNF[family] = Forwarding{On: s.number(forwarding) != 0}, s.number(bridge) != 0
	}
	f.readInterfaceSettings(&s)
	f.Conntrack = s.conntrack()
	return errors.Join(s.errs...)
}

// readInterfaceSettings reads the settings of IPv4 on each interface. IPv6 has one
// switch for forwarding.
func (f *Facts) readInterfaceSettings(s *settings) {
	const conf = "net/ipv4/conf/"
	filter, ignore := s.number(conf+"all/rp_filter"), s.number(conf+"all/arp_ignore")
	v4 := f.Forwarding[model.IPv4]
	for _, name := range f.Interfaces {
		if name == "lo" {
			continue
		}
		if v4.On && s.text(conf+name+"/forwarding") == "0" {
			v4.Off = append(v4.Off, name)
		}
		if max(filter, s.number(conf+name+"/rp_filter")) == 1 { // 2 is the loose mode
			f.StrictPath = append(f.StrictPath, name)
		}
		if max(ignore, s.number(conf+name+"/arp_ignore")) > 0 {
			f.StrictARP = append(f.StrictARP, name)
		}
	}
	f.Forwarding[model.IPv4] = v4
}

func (s *settings) conntrack() Conntrack {
	const prefix = "net/netfilter/nf_conntrack_"
	return Conntrack{Count: s.number(prefix + "count"), Max: s.number(prefix + "max"), Buckets: s.number(prefix + "buckets")}
}

// readLinks reads interfaces that are up, their addresses, and bridges with ports.
func (f *Facts) readLinks() error {
	links, err := netlinkio.List(netlink.LinkList)
	if err != nil {
		return err
	}
	ports, bridges, names := make(map[int]int), make(map[int]string), make(map[int]string)
	for _, l := range links {
		a := l.Attrs()
		names[a.Index] = a.Name
		ports[a.MasterIndex]++
		if a.Flags&1 != 0 || strings.HasPrefix(a.Name, "kube-") || a.Name == nodeLocalInterface { // IFF_UP
			f.Interfaces = append(f.Interfaces, a.Name)
		}
		if l.Type() == "bridge" {
			bridges[a.Index] = a.Name
		}
	}
	addresses, err := netlinkio.Addresses(nil)
	if err != nil {
		return err
	}
	networks := make(map[int][]netip.Prefix)
	for _, a := range addresses {
		ip, _ := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		f.Addresses = append(f.Addresses, ip.Unmap())
		f.Assigned = append(f.Assigned, Assigned{names[a.LinkIndex], netip.PrefixFrom(ip.Unmap(), bits)})
		if !ip.IsLinkLocalUnicast() {
			networks[a.LinkIndex] = append(networks[a.LinkIndex], netip.PrefixFrom(ip.Unmap(), bits).Masked())
		}
	}
	for index, name := range bridges {
		if ports[index] > 0 {
			f.Bridges = append(f.Bridges, Bridge{name, ports[index], networks[index]})
		}
	}
	slices.SortFunc(f.Bridges, func(a, b Bridge) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// kernelRules are the rules of IPv4 routing that the kernel has: for the tables local, main
// and default.
const kernelRules = 3

func (f *Facts) readRules() error {
	rules, err := netlinkio.List(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_V4) })
	f.PolicyRules = max(0, len(rules)-kernelRules)
	return err
}

func linkNames() (map[int]string, error) {
	links, err := netlinkio.List(netlink.LinkList)
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names, err
}

// readRoutes reads the routes once for all questions: a router may have a million.
func (f *Facts) readRoutes() error {
	names, err := linkNames()
	if err != nil {
		return err
	}
	addresses, err := netlinkio.Addresses(nil)
	if err != nil {
		return err
	}
	for _, family := range model.Families {
		number := map[model.Family]int{model.IPv4: netlink.FAMILY_V4, model.IPv6: netlink.FAMILY_V6}[family]
		if err := netlinkio.Complete(func() error {
			return netlink.RouteListFilteredIter(number, &netlink.Route{}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				f.addSourced(family, &r, names[r.LinkIndex], addresses)
				if family == model.IPv4 {
					f.addUplinks(&r, names)
				}
				return true
			})
		}); err != nil {
			return err
		}
	}
	slices.Sort(f.Uplinks)
	return nil
}

// addUplinks adds the interfaces of a default route.
func (f *Facts) addUplinks(r *netlink.Route, names map[int]string) {
	if r.Dst != nil && !(r.Dst.IP.IsUnspecified() && prefixLength(*r) == 0) || r.Type != unix.RTN_UNICAST {
		return
	}
	for _, hop := range append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: r.LinkIndex}) {
		if name := names[hop.LinkIndex]; name != "" && !slices.Contains(f.Uplinks, name) {
			f.Uplinks = append(f.Uplinks, name)
		}
	}
}

func prefixLength(r netlink.Route) int {
	bits, _ := r.Dst.Mask.Size()
	return bits
}

// readNeighbours reads the IPv6 addresses for which the machine answers neighbours although
// no interface has them.
func (f *Facts) readNeighbours() error {
	proxied, err := netlinkio.List(func() ([]netlink.Neigh, error) { return netlink.NeighProxyList(0, netlink.FAMILY_V6) })
	if err != nil {
		return err
	}
	for _, n := range proxied {
		if ip, ok := netip.AddrFromSlice(n.IP); ok {
			f.Proxied = append(f.Proxied, ip)
		}
	}
	return nil
}

func (f *Facts) readLegacy() error {
	var errs []error
	for _, family := range []xtables.Family{xtables.IPv4, xtables.IPv6} {
		names, err := xtables.Tables("/", family)
		errs = append(errs, err)
		for _, name := range names {
			t, err := xtables.Read(family, name)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			table := LegacyTable{Name: string(family) + " " + name, KubeProxy: slices.ContainsFunc(t.Chains(), takeover.IsKubeProxy)}
			if name == "filter" {
				forward, err := t.Forward()
				table.ForwardDrops, table.ForwardAccept = forward.Drops, forward.Rules
				errs = append(errs, err)
			}
			f.Legacy = append(f.Legacy, table)
		}
	}
	return errors.Join(errs...)
}
