// Package takeover removes kube-proxy's leftovers of any mode from a node: nftables
// tables, iptables chains in nf_tables, and the virtual servers, interface and ipsets of
// IPVS. It only reports rules of iptables-legacy. Rules of the kubelet, and rules and
// virtual servers of other programs stay.
//
// It is for a node whose own rules are active. The first matching NAT rule translates
// a connection, and later rules do not see it, so the rules of both proxies can
// coexist for a while; at equal priority, the chain that was registered last comes
// first.
package takeover

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// Remove removes kube-proxy's leftovers from the network namespace of the calling thread, and
// continues after a failure (12.59). It returns descriptions of the removed parts, and an
// error that lists the ones that are left, why, and the remedy. m replaces the tables of
// nftables mode. Established connections continue, except those of this machine itself to
// addresses that IPVS mode gave it.
func Remove(ctx context.Context, m Marker) (removed []string, err error) {
	return system{root: "/"}.remove(ctx, m)
}

// system is the machine; files are read below root.
type system struct{ root string }

func (s system) remove(ctx context.Context, m Marker) ([]string, error) {
	var r report
	r.removeTables(m)
	for _, f := range families {
		r.reportLegacy(s, f)
	}
	if r.removeIPVS(s) {
		r.removeIPSets(ctx, s) // the rules referred to them
	}
	return r.removed, errors.Join(r.errs...)
}

type report struct {
	removed []string
	errs    []error
}

func (r *report) addRemoved(format string, args ...any) {
	r.removed = append(r.removed, fmt.Sprintf(format, args...))
}

// addFailure reports something that could not be removed. A nil error does nothing.
func (r *report) addFailure(err error, format string, args ...any) {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("remove "+format+": %w", append(args, err)...))
	}
}

type family struct {
	nft  nftables.TableFamily
	name string // in nft, and the prefix of the iptables commands
}

var families = []family{
	{nftables.TableFamilyIPv4, "ip"},
	{nftables.TableFamilyIPv6, "ip6"},
}

// removeTables removes the tables of nftables mode, and the chains of the other
// modes where iptables keeps them in nf_tables. Each table is one transaction.
func (r *report) removeTables(m Marker) {
	conn, err := nftconn.Open()
	if err != nil {
		r.addFailure(err, "rules of kube-proxy: open netlink socket")
		return
	}
	for _, f := range families {
		err := netlinkio.Retry(isRacing, func() error { return r.nftTable(conn, f, m) })
		r.addFailure(err, "table %s %s", f.name, KubeProxyTable)
		for _, name := range iptablesTables {
			t := iptables{conn, &nftables.Table{Family: f.nft, Name: name}}
			err := netlinkio.Retry(isRacing, func() error { return r.removeChains(t, f) })
			r.addFailure(err, "chains of kube-proxy from table %s %s", f.name, name)
		}
	}
}

// isRacing reports whether another program may have changed the rules in between.
func isRacing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ERESTART)
}
