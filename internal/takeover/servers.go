package takeover

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// virtualServer is one of IPVS.
type virtualServer struct {
	protocol model.Protocol
	to       netip.AddrPort
}

// virtualServers removes the virtual servers of kube-proxy. Connection tracking takes over
// their connections.
func (r *report) virtualServers(s system, services map[netip.Addr]bool) error {
	list, err := s.read("ip_vs")
	if err != nil || list == "" {
		return err
	}
	known, err := kubeProxyServers(services)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(parseServers(list), func(v virtualServer) bool { return !known.isKubeProxys(v) })
	if len(own) == 0 {
		return nil
	}
	takes := func(p model.Protocol, to netip.AddrPort) bool { return slices.Contains(own, virtualServer{p, to}) }
	connections, err := conntrack.ListAdoption(takes)
	r.addFailure(err, "virtual servers of IPVS and keep their connections")
	end, err := guardConnections()
	r.addFailure(err, "virtual servers of IPVS and hold packets meanwhile")
	removed := 0
	var left []error
	for _, v := range own {
		switch err := deleteServer(v); {
		case err == nil:
			removed++
		case !errors.Is(err, unix.ESRCH): // it is gone
			left = append(left, fmt.Errorf("delete virtual server %s %s: %w", v.protocol, v.to, err))
		}
	}
	r.addFailure(s.adoptConnections(connections, takes), "virtual servers of IPVS and keep their connections")
	if end != nil {
		r.addFailure(end(), "table inet %s", guardTable)
	}
	if removed > 0 {
		r.addRemoved("%s of IPVS, of which %s on", terminal.Count(removed, "virtual server"), describeCount(connections.Adopted))
	}
	return errors.Join(left...)
}

// forgetting is how long IPVS may take to forget the connections of deleted virtual servers.
// It does so in the background, within milliseconds from 5.9 on.
const forgetting = 2 * time.Second

// adoptConnections has connection tracking translate connections as IPVS forgets them.
func (s system) adoptConnections(a *conntrack.Adoption, takes func(model.Protocol, netip.AddrPort) bool) error {
	for deadline := time.Now().Add(forgetting); a.Pending() > 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		list, err := s.read("ip_vs_conn")
		if err == nil {
			err = a.Restore()
		}
		if err != nil {
			return errors.Join(err, a.Finish(takes))
		}
		if !slices.ContainsFunc(parseConnections(list), func(v virtualServer) bool { return takes(v.protocol, v.to) }) {
			break // it has forgotten them before
		}
	}
	return a.Finish(takes)
}

// read reads a file of IPVS, which is empty if there is none.
func (s system) read(name string) (string, error) {
	list, err := os.ReadFile(filepath.Join(s.root, "proc/thread-self/net", name))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("list virtual servers: %w", err)
	}
	return string(list), nil
}

func describeCount(connections int) string {
	if connections == 1 {
		return "1 connection goes"
	}
	return fmt.Sprintf("%d connections go", connections)
}

// parseServers reads the virtual servers that have an address from /proc/net/ip_vs.
func parseServers(list string) (servers []virtualServer) {
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if i := strings.LastIndexByte(words[1], ':'); i >= 0 {
			if v, err := parseServer(words[0], words[1][:i], words[1][i+1:]); err == nil {
				servers = append(servers, v)
			}
		}
	}
	return servers
}

// parseConnections reads the virtual servers of connections from /proc/net/ip_vs_conn,
// except for templates of session affinity, which have no port of a client.
func parseConnections(list string) (servers []virtualServer) {
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 7 || words[2] == "0000" {
			continue
		}
		if v, err := parseServer(words[0], words[3], words[4]); err == nil {
			servers = append(servers, v)
		}
	}
	return servers
}

// parseServer reads what both files have: IPv4 addresses and ports are hexadecimal.
func parseServer(protocol, to, port string) (v virtualServer, err error) {
	v.protocol = map[string]model.Protocol{"TCP": model.TCP, "UDP": model.UDP, "SCTP": model.SCTP}[protocol]
	if v.protocol == 0 {
		return v, fmt.Errorf("protocol %q", protocol)
	}
	address, err := parseAddress(to)
	if err != nil {
		return v, err
	}
	n, err := strconv.ParseUint(port, 16, 16)
	v.to = netip.AddrPortFrom(address, uint16(n))
	return v, err
}

func parseAddress(text string) (netip.Addr, error) {
	if strings.Contains(text, ":") {
		return netip.ParseAddr(strings.Trim(text, "[]"))
	}
	b, err := hex.DecodeString(text)
	a, ok := netip.AddrFromSlice(b)
	if err == nil && !ok {
		err = fmt.Errorf("%q is no address", text)
	}
	return a, err
}

// known is what kube-proxy's virtual servers are recognised by.
type known struct {
	services  map[netip.Addr]bool // addresses of Services, which its interface has
	nodePorts map[model.Protocol][]uint16
}

// isKubeProxys reports whether a virtual server is kube-proxy's: its address is one of a Service, or
// its port is a NodePort. In mode ipvs, kube-proxy itself deletes all others that are not in
// excludeCIDRs.
func (k known) isKubeProxys(v virtualServer) bool {
	return k.services[v.to.Addr()] || slices.Contains(k.nodePorts[v.protocol], v.to.Port())
}

// nodePortSets are the ipsets with the NodePorts of a protocol.
var nodePortSets = map[model.Protocol]string{model.TCP: "NODE-PORT-TCP", model.UDP: "NODE-PORT-UDP", model.SCTP: "NODE-PORT-SCTP-HASH"}

// kubeProxyServers returns what they are recognised by, with the addresses of the interface.
func kubeProxyServers(services map[netip.Addr]bool) (known, error) {
	k := known{services, map[model.Protocol][]uint16{}}
	for protocol, name := range nodePortSets {
		for _, prefix := range []string{"KUBE-", "KUBE-6-"} {
			ports, err := portsOf(prefix + name)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return k, fmt.Errorf("list ipset %s: %w", prefix+name, err)
			}
			k.nodePorts[protocol] = append(k.nodePorts[protocol], ports...)
		}
	}
	return k, nil
}

// Of <linux/ip_vs.h>.
const (
	ipvsFamily        = "IPVS"
	ipvsVersion       = 1
	ipvsDeleteService = 3
	ipvsService       = 1 // attribute of the command
	ipvsAddressFamily = 1 // and of the service
	ipvsProtocol      = 2
	ipvsAddress       = 3
	ipvsPort          = 4
)

// deleteServer deletes a virtual server.
func deleteServer(v virtualServer) error {
	family, err := netlink.GenlFamilyGet(ipvsFamily)
	if err != nil {
		return err
	}
	af := uint16(unix.AF_INET)
	if v.to.Addr().Is6() {
		af = unix.AF_INET6
	}
	address := make([]byte, 16) // of either family
	copy(address, v.to.Addr().AsSlice())
	service := nl.NewRtAttr(ipvsService|unix.NLA_F_NESTED, nil)
	service.AddRtAttr(ipvsAddressFamily, nl.Uint16Attr(af))
	service.AddRtAttr(ipvsProtocol, nl.Uint16Attr(uint16(v.protocol)))
	service.AddRtAttr(ipvsAddress, address)
	service.AddRtAttr(ipvsPort, []byte{byte(v.to.Port() >> 8), byte(v.to.Port())})
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	request.AddData(&nl.Genlmsg{Command: ipvsDeleteService, Version: ipvsVersion})
	request.AddData(service)
	_, err = request.Execute(unix.NETLINK_GENERIC, 0)
	return err
}
