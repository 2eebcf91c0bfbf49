package takeover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// IPVSInterface has the addresses of Services in IPVS mode.
const IPVSInterface = "kube-ipvs0"

// ipsetNames are the ipsets of IPVS mode without their prefix, which is KUBE- or,
// for IPv6, KUBE-6-. Other ipsets with that prefix belong to network plugins.
var ipsetNames = []string{
	"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "IPVS-IPS", "HEALTH-CHECK-NODE-PORT",
	"LOAD-BALANCER", "LOAD-BALANCER-LOCAL", "LOAD-BALANCER-FW", "LOAD-BALANCER-SOURCE-IP", "LOAD-BALANCER-SOURCE-CIDR",
	"NODE-PORT-TCP", "NODE-PORT-LOCAL-TCP", "NODE-PORT-UDP", "NODE-PORT-LOCAL-UDP",
	"NODE-PORT-SCTP-HASH", "NODE-PORT-LOCAL-SCTP-HASH",
}

// removeIPVS removes the virtual servers of kube-proxy, and then the interface. It reports whether
// the ipsets may go, too: the next attempt recognises virtual servers by the addresses of the
// interface and the NodePorts in the ipsets.
func (r *report) removeIPVS(s system) (gone bool) {
	link, err := netlink.LinkByName(IPVSInterface)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return true
	}
	var services map[netip.Addr]bool
	if err == nil {
		services, err = addressesOf(link)
	}
	if err == nil {
		err = r.virtualServers(s, services)
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err == nil {
		r.addRemoved("interface %s", IPVSInterface)
		r.ownConnections(services)
	}
	r.addFailure(err, "interface %s", IPVSInterface)
	return err == nil
}

// addressesOf returns the addresses of an interface.
func addressesOf(link netlink.Link) (map[netip.Addr]bool, error) {
	list, err := netlinkio.Addresses(link)
	if err != nil {
		return nil, fmt.Errorf("list its addresses: %w", err)
	}
	addresses := map[netip.Addr]bool{}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			addresses[ip.Unmap()] = true
		}
	}
	return addresses, nil
}

func (r *report) removeIPSets(ctx context.Context, s system) {
	// The request alone would load the module.
	if _, err := os.Stat(filepath.Join(s.root, "sys/module/ip_set")); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, release)
	defer cancel()
	for _, prefix := range []string{"KUBE-", "KUBE-6-"} {
		for _, name := range ipsetNames {
			name = prefix + name
			name = name[:min(len(name), maxIPSetName)]
			switch err := destroyUnused(ctx, name); {
			case err == nil:
				r.addRemoved("ipset %s", name)
			case !errors.Is(err, unix.ENOENT):
				r.addFailure(err, "ipset %s", name)
			}
		}
	}
}

// maxIPSetName is IPSET_MAXNAMELEN less the final NUL; kube-proxy cuts names there.
const maxIPSetName = 31

// release is how long the kernel may take to release removed rules. It does so
// after the transaction, in the background.
const release = 2 * time.Second

// destroyUnused destroys a set once no rule refers to it any more. Without the flag EXCL the
// kernel reports success for a set that does not exist.
func destroyUnused(ctx context.Context, name string) error {
	for {
		_, err := askIPSet(nl.IPSET_CMD_DESTROY, unix.NLM_F_ACK|unix.NLM_F_EXCL, name)
		if !errors.Is(err, unix.Errno(nl.IPSET_ERR_BUSY)) {
			return err
		}
		if !parallel.Wait(ctx, 10*time.Millisecond) {
			return errors.New("rules refer to it: remove these, and restart nftproxy")
		}
	}
}

// askIPSet sends a request about a set, and returns the messages of the answer.
func askIPSet(command, flags int, name string) ([][]byte, error) {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|command, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	return r.Execute(unix.NETLINK_NETFILTER, 0)
}

// portsOf returns the ports of the entries of a set. The library for ipsets prints a line
// for every attribute that it does not know.
func portsOf(name string) (ports []uint16, err error) {
	messages, err := askIPSet(nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, name)
	for _, m := range messages {
		for a := netlinkio.ReadMessage(m, &err); a.Next(); {
			if a.Type != nl.IPSET_ATTR_ADT {
				continue
			}
			for entries := a.Nested(); entries.Next(); {
				for e := entries.Nested(); e.Next(); {
					if e.Type == nl.IPSET_ATTR_PORT && len(e.Data) == 2 {
						ports = append(ports, binary.BigEndian.Uint16(e.Data))
					}
				}
			}
		}
	}
	return ports, err
}
