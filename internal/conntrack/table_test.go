package conntrack

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
)

// webPort is served at port 80 of each address.
func webPort(f model.Frontend) (p model.PortName, ok bool) {
	if f.Port == 80 {
		return model.PortName{Service: model.ServiceName{Namespace: "shop", Name: "web"}, Protocol: f.Protocol}, true
	}
	return p, false
}

// TestReadTable: 11.31, one reading has the entries of both families and of all zones, by what they have in common.
func TestReadTable(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	x.add(zone{}, clients(300, model.UDP, "10.96.0.1:80", "10.0.0.1:8080")...)
	x.add(zone{id: 7}, clients(300, model.UDP, "10.96.0.1:81", "10.0.0.1:8080")...)
	x.add(zone{}, clients(5, model.UDP, "[fd00::1]:80", "[fd00::2]:8080")...)
	var got *Table
	x.do(func() (err error) { got, err = ReadTable(webPort); return err })
	web, _ := webPort(model.Frontend{Port: 80, Protocol: model.UDP})
	group := func(client string, p model.PortName) Group {
		return Group{Protocol: model.UDP, State: "unanswered", Client: netip.MustParsePrefix(client), Port: p}
	}
	want := &Table{Entries: 605, Groups: map[Group]int{
		group("172.16.0.0/32", web): 256, group("172.16.0.1/32", web): 44,
		group("172.16.0.0/32", model.PortName{}): 256, group("172.16.0.1/32", model.PortName{}): 44,
		group("fd00::/64", web): 5,
	}}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

// TestTableIsBounded: 11.31, forged clients take no more memory than so many, and their entries count.
func TestTableIsBounded(t *testing.T) {
	table := &Table{Groups: make(map[Group]int)}
	g := Group{Protocol: model.UDP, State: "unanswered"}
	for i := range 2 * MostGroups {
		g.Client = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		table.add(g)
	}
	g.Client = netip.Prefix{}
	if table.Entries != 2*MostGroups || len(table.Groups) != MostGroups+1 || table.Groups[g] != MostGroups {
		t.Errorf("%d entries, %d groups, %d entries of further clients", table.Entries, len(table.Groups), table.Groups[g])
	}
}

// BenchmarkReadTable reads entries of as many clients. It needs root, and room in the node's nf_conntrack_max.
func BenchmarkReadTable(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			if room := limit(b); room < n {
				b.Skipf("net.netfilter.nf_conntrack_max is %d; raise it to %d", room, n)
			}
			x := newTable(b)
			flows := clients(n, model.UDP, "10.96.0.1:80", "10.0.0.1:8080")
			for i := range flows {
				flows[i].Client = netip.AddrFrom4([4]byte{172, byte(i >> 16), byte(i >> 8), byte(i)})
				flows[i].Returns = netip.AddrPortFrom(flows[i].Client, 1024)
			}
			x.add(zone{}, flows...)
			b.ReportAllocs()
			var held uint64
			for b.Loop() {
				var t *Table
				x.do(func() (err error) { t, err = ReadTable(webPort); return err })
				b.StopTimer()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				held = m.HeapAlloc
				if t.Entries != n {
					b.Fatalf("%d entries, want %d", t.Entries, n)
				}
				runtime.KeepAlive(flows)
				b.StartTimer()
			}
			b.ReportMetric(float64(held)/(1<<20), "MiB-heap")
		})
	}
}
