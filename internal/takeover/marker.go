package takeover

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// KubeProxyTable is the table of nftables mode.
const KubeProxyTable = "kube-proxy"

// Marker replaces kube-proxy's tables of nftables mode: a table of the same name
// with one empty chain. Calico's Felix programs nftables where that table
// has any chain, else iptables; it looks every 15 seconds, and restarts when the
// answer changes.
//
// The table has no owner and no hook: kube-proxy can use it again.
type Marker int

const (
	NoMarker     Marker = iota // leave no marker, and remove an existing one
	MarkReplaced               // leave a marker in place of an existing table
	MarkAlways                 // leave a marker in any case
)

// MarkerChain is the chain of the marker.
const MarkerChain = "served-by-nftproxy"

type content int

const (
	noTable content = iota
	markerOnly
	markerAmongOthers // kube-proxy uses the table again
	foreignOnly
)

func chainsOf(conn *nftables.Conn, table *nftables.Table) ([]*nftables.Chain, error) {
	all, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	return slices.DeleteFunc(all, func(c *nftables.Chain) bool { return c.Table.Name != table.Name }), nil
}

func contentOf(conn *nftables.Conn, table *nftables.Table) (content, error) {
	tables, err := conn.ListTablesOfFamily(table.Family)
	if err != nil {
		return noTable, fmt.Errorf("list tables: %w", err)
	}
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == table.Name }) {
		return noTable, nil
	}
	all, err := chainsOf(conn, table)
	if err != nil {
		return noTable, err
	}
	marked := slices.ContainsFunc(all, func(c *nftables.Chain) bool { return c.Name == MarkerChain && c.Hooknum == nil })
	switch {
	case marked && len(all) > 1:
		return markerAmongOthers, nil
	case marked:
		return markerOnly, nil
	}
	return foreignOnly, nil
}

// Marks are the IP families whose tables kube-proxy had a marker.
type Marks []family

// ReadMarks returns those that there are.
func ReadMarks() (m Marks, err error) {
	conn, err := nftconn.Open()
	if err != nil {
		return nil, fmt.Errorf("read markers: open netlink socket: %w", err)
	}
	for _, f := range families {
		is, err := contentOf(conn, &nftables.Table{Family: f.nft, Name: KubeProxyTable})
		if err != nil {
			return m, err
		}
		if is == markerOnly {
			m = append(m, f)
		}
	}
	return m, nil
}

// Restore makes the markers again that are gone, and returns descriptions of them. A table that another program
// has made in the meantime stays as it is.
func (m Marks) Restore() (restored []string, err error) {
	if len(m) == 0 {
		return nil, nil
	}
	conn, err := nftconn.Open()
	if err != nil {
		return nil, fmt.Errorf("restore markers: open netlink socket: %w", err)
	}
	for _, f := range m {
		table := &nftables.Table{Family: f.nft, Name: KubeProxyTable}
		switch is, err := contentOf(conn, table); {
		case err != nil:
			return restored, err
		case is != noTable:
			continue
		}
		addMarker(conn, table)
		if err := conn.Flush(); err != nil {
			return restored, fmt.Errorf("restore table %s %s: %w", f.name, KubeProxyTable, err)
		}
		restored = append(restored, fmt.Sprintf("table %s %s", f.name, KubeProxyTable))
	}
	return restored, nil
}

// addMarker adds the marker to a batch.
func addMarker(conn *nftables.Conn, table *nftables.Table) {
	conn.AddTable(table)
	conn.AddChain(&nftables.Chain{Table: table, Name: MarkerChain})
}

// RemoveMarkers removes the markers of an earlier takeover, and nothing else: a
// kube-proxy that uses the tables again keeps them. It returns descriptions of what
// it removed.
func RemoveMarkers() (removed []string, err error) {
	var r report
	conn, err := nftconn.Open()
	if err != nil {
		return nil, fmt.Errorf("remove markers: open netlink socket: %w", err)
	}
	for _, f := range families {
		err := netlinkio.Retry(isRacing, func() error { return r.removeMarker(conn, f) })
		r.addFailure(err, "chain %s from table %s %s", MarkerChain, f.name, KubeProxyTable)
	}
	return r.removed, errors.Join(r.errs...)
}

// removeMarker removes the marker of a family, with the table if that is its only content;
// the generation ensures that nothing was added after the table was read.
func (r *report) removeMarker(conn *nftables.Conn, f family) error {
	generation, err := conn.GetGen()
	if err != nil {
		return fmt.Errorf("read generation of the ruleset: %w", err)
	}
	table := &nftables.Table{Family: f.nft, Name: KubeProxyTable}
	found, err := contentOf(conn, table)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("table %s %s", f.name, KubeProxyTable)
	switch found {
	case markerOnly:
		conn.DelTable(table)
	case markerAmongOthers:
		what = fmt.Sprintf("chain %s from %s", MarkerChain, what)
		conn.DelChain(&nftables.Chain{Table: table, Name: MarkerChain})
	default:
		return nil
	}
	if err := conn.FlushWithGenID(generation.ID); err != nil {
		return err
	}
	r.addRemoved("%s", what)
	return nil
}

// nftTable removes the table of nftables mode, which is kube-proxy's alone, or
// replaces it with the marker, in one transaction: a program that looks for
// chains finds some at every moment.
func (r *report) nftTable(conn *nftables.Conn, f family, m Marker) error {
	table := &nftables.Table{Family: f.nft, Name: KubeProxyTable}
	found, err := contentOf(conn, table)
	if err != nil {
		return err
	}
	leave := m == MarkAlways || m == MarkReplaced && found != noTable
	if found == noTable && !leave || found == markerOnly && leave {
		return nil
	}
	except := ""
	if found != noTable {
		conn.DelTable(table)
	}
	if leave {
		except = " except for an empty chain " + MarkerChain
		addMarker(conn, table)
	}
	err = conn.Flush()
	if found != noTable && err == nil {
		r.addRemoved("table %s %s%s", f.name, KubeProxyTable, except)
	}
	if found == noTable && errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // a kernel without IPv6
	}
	return err
}
