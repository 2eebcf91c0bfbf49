package takeover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
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

// ipvsInterface removes the interface and reports whether it existed.
func (r *report) ipvsInterface() bool {
	link, err := netlink.LinkByName(IPVSInterface)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return false
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err == nil {
		r.gone("interface %s", IPVSInterface)
	}
	r.left(err, "interface %s", IPVSInterface)
	return true
}

func (r *report) ipsets(ctx context.Context, s system) {
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
				r.gone("ipset %s", name)
			case !errors.Is(err, unix.ENOENT):
				r.left(err, "ipset %s", name)
			}
		}
	}
}

// maxIPSetName is IPSET_MAXNAMELEN less the final NUL; kube-proxy cuts names there.
const maxIPSetName = 31

// release is how long the kernel may take to release removed rules. It does so
// after the transaction, in the background.
const release = 2 * time.Second

// destroyUnused destroys a set once no rule refers to it any more.
func destroyUnused(ctx context.Context, name string) error {
	for {
		err := destroyIPSet(name)
		if !errors.Is(err, unix.Errno(nl.IPSET_ERR_BUSY)) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("rules refer to it: remove these, and restart nftproxy")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// destroyIPSet removes a set that no rule refers to. Without the flag EXCL the
// kernel reports success for a set that does not exist.
func destroyIPSet(name string) error {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_DESTROY, unix.NLM_F_ACK|unix.NLM_F_EXCL)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

var service = regexp.MustCompile(`(?m)^(TCP|UDP|SCTP|FWM) `)

// virtualServices reports the remaining virtual services of IPVS. The kernel does not
// record which program added them.
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
