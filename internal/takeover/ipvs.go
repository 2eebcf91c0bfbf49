package takeover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ipvsInterface has the addresses of Services in IPVS mode.
const ipvsInterface = "kube-ipvs0"

// ipsetNames are the ipsets of IPVS mode without their prefix, which is KUBE- or,
// for IPv6, KUBE-6-. Other ipsets with that prefix are those of network plugins.
var ipsetNames = []string{
	"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "IPVS-IPS", "HEALTH-CHECK-NODE-PORT",
	"LOAD-BALANCER", "LOAD-BALANCER-LOCAL", "LOAD-BALANCER-FW", "LOAD-BALANCER-SOURCE-IP", "LOAD-BALANCER-SOURCE-CIDR",
	"NODE-PORT-TCP", "NODE-PORT-LOCAL-TCP", "NODE-PORT-UDP", "NODE-PORT-LOCAL-UDP",
	"NODE-PORT-SCTP-HASH", "NODE-PORT-LOCAL-SCTP-HASH",
}

// ipvsInterface removes the interface and reports whether it existed.
func (r *report) ipvsInterface() bool {
	link, err := netlink.LinkByName(ipvsInterface)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return false
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err == nil {
		r.gone("interface %s", ipvsInterface)
	}
	r.left(err, "interface %s", ipvsInterface)
	return true
}

// ipsets removes the ipsets of IPVS mode.
func (r *report) ipsets(ctx context.Context, s system) {
	// The question alone would load the module.
	if _, err := os.Stat(filepath.Join(s.root, "sys/module/ip_set")); err != nil {
		return
	}
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		r.left(err, "ipsets of kube-proxy: open netlink socket")
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, release)
	defer cancel()
	for _, prefix := range []string{"KUBE-", "KUBE-6-"} {
		for _, name := range ipsetNames {
			name = prefix + name
			name = name[:min(len(name), maxIPSetName)]
			switch err := destroyUnused(ctx, conn, name); {
			case err == nil:
				r.gone("ipset %s", name)
			case !errors.Is(err, unix.ENOENT):
				r.left(err, "ipset %s", name)
			}
		}
	}
}

// Numbers of linux/netfilter/ipset/ip_set.h.
const (
	ipsetProtocol     = 6  // IPSET_PROTOCOL_MIN
	ipsetDestroy      = 3  // IPSET_CMD_DESTROY
	ipsetAttrProtocol = 1  // IPSET_ATTR_PROTOCOL
	ipsetAttrName     = 2  // IPSET_ATTR_SETNAME
	maxIPSetName      = 31 // IPSET_MAXNAMELEN less the final NUL; kube-proxy cuts names there

	ipsetBusy = unix.Errno(4100) // IPSET_ERR_BUSY
)

// release is how long the kernel may take to release removed rules. It does so
// after the transaction, in the background.
const release = 2 * time.Second

// destroyUnused destroys a set once no rule refers to it any more.
func destroyUnused(ctx context.Context, conn *mdnetlink.Conn, name string) error {
	for {
		err := destroyIPSet(conn, name)
		if !errors.Is(err, ipsetBusy) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("rules refer to it: remove these, and restart nftproxy")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// destroyIPSet removes a set that no rule refers to.
func destroyIPSet(conn *mdnetlink.Conn, name string) error {
	attributes, err := mdnetlink.MarshalAttributes([]mdnetlink.Attribute{
		{Type: ipsetAttrProtocol, Data: []byte{ipsetProtocol}},
		{Type: ipsetAttrName, Data: append([]byte(name), 0)},
	})
	if err != nil {
		return err
	}
	_, err = conn.Execute(mdnetlink.Message{
		Header: mdnetlink.Header{
			Type: unix.NFNL_SUBSYS_IPSET<<8 | ipsetDestroy,
			// Without Excl the absence of the set is called success.
			Flags: mdnetlink.Request | mdnetlink.Acknowledge | mdnetlink.Excl,
		},
		Data: append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}, attributes...),
	})
	return err
}

// service matches a virtual service in the kernel's list.
var service = regexp.MustCompile(`(?m)^(TCP|UDP|SCTP|FWM) `)

// virtualServices reports what IPVS still forwards. The kernel does not record
// which program added it, and another one may use IPVS as well.
func (r *report) virtualServices(s system) {
	list, err := os.ReadFile(filepath.Join(s.root, "proc/thread-self/net/ip_vs"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if n := len(service.FindAll(list, -1)); err == nil && n > 0 {
		err = fmt.Errorf("%d are left: if nothing else on this node uses IPVS, run \"ipvsadm -C\"", n)
	}
	r.left(err, "virtual services of IPVS")
}
