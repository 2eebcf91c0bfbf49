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

// ipvsInterface is where IPVS mode puts the addresses of Services.
const ipvsInterface = "kube-ipvs0"

// ipvsInterface removes the interface and tells whether it was there.
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
	// A kernel that has no ipset must not load it to be asked.
	if _, err := os.Stat(filepath.Join(s.root, "sys/module/ip_set")); err != nil {
		return
	}
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		r.left(err, "ipsets of kube-proxy: open netlink socket")
		return
	}
	defer conn.Close()
	for _, begin := range []string{"KUBE-", "KUBE-6-"} {
		for _, name := range ipsetNames {
			name = begin + name
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

// release is how long the kernel may take to let go of the rules that are
// removed. It does so after the transaction, in the background.
const release = 2 * time.Second

// destroyUnused destroys a set once no rule refers to it any more.
func destroyUnused(ctx context.Context, conn *mdnetlink.Conn, name string) error {
	ctx, cancel := context.WithTimeout(ctx, release)
	defer cancel()
	for {
		err := destroyIPSet(conn, name)
		if !errors.Is(err, ipsetBusy) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("rules of others refer to it: remove these, and restart nftproxy")
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

// virtualServices reports what IPVS still forwards. The kernel does not say who
// asked for it, and what is on the node's own addresses may be somebody else's.
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
