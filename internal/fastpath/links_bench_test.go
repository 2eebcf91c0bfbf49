package fastpath

import (
	"fmt"
	"testing"

	"github.com/google/nftables"
	netlinkconn "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// BenchmarkPod measures what a pod that comes and goes costs on a node with 250 pods: what is sent to
// the kernel, and allocations. The devices of the others are not sent again.
func BenchmarkPod(b *testing.B) {
	sent, transactions := 0, 0
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithTestDial(func(messages []netlinkconn.Message) ([]netlinkconn.Message, error) {
		if len(messages) > 0 { // else it waits for answers
			transactions++
		}
		for _, m := range messages {
			sent += unix.NLMSG_HDRLEN + len(m.Data)
		}
		return nil, nil
	}))
	if err != nil {
		b.Fatal(err)
	}
	h := &hooks{table: &table{conn: conn, in: &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}}, names: make(map[int]string)}
	event := func(kind uint16, index int) *netlink.LinkUpdate {
		u := &netlink.LinkUpdate{Link: &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: index, Name: fmt.Sprintf("pod-%d", index)}}}
		u.Header.Type, u.Index, u.Flags = kind, int32(index), unix.IFF_UP
		return u
	}
	for i := range 250 {
		if err := h.event(event(unix.RTM_NEWLINK, i)); err != nil {
			b.Fatal(err)
		}
	}
	sent, transactions = 0, 0
	come, goes := event(unix.RTM_NEWLINK, 1000), event(unix.RTM_DELLINK, 1000)
	b.ReportAllocs()
	for b.Loop() {
		h.gone = 0 // a thousand devices that have gone are counted by the kernel
		for _, u := range []*netlink.LinkUpdate{come, goes} {
			if err := h.event(u); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(sent)/float64(b.N), "netlink-B/op")
	b.ReportMetric(float64(transactions)/float64(b.N), "transactions/op")
}
