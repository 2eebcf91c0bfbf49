package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestOutcomes: 17.11. What the kernel says about connections with an answer, without one, and
// without an entry, many of them over one socket.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	for _, to := range [][2]string{{"10.96.0.1:80", "10.0.0.1:8080"}, {"[fd00::1]:80", "[fd00::2]:8080"}} {
		var connections []Connection
		var want []Outcome
		var known []Flow
		for i, f := range clients(3*together+3, model.TCP, to[0], to[1]) {
			connections = append(connections, Connection{model.TCP, netip.AddrPortFrom(f.Client, f.Returns.Port()), f.Dialled})
			want = append(want, Outcome(i%Outcomes))
			if f.Opening = want[i] == Unanswered; want[i] != Refused {
				known = append(known, f)
			}
		}
		x.add(zone{}, known...)
		x.do(func() error {
			got, err := Netlink{}.OutcomesOf(connections)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", to[0], got, want)
			}
			return err
		})
	}
}

// BenchmarkEntriesOf looks for connections, of which one half has an entry.
func BenchmarkEntriesOf(b *testing.B) {
	const all = 1000
	x := newTable(b)
	flows := clients(all, model.TCP, "10.96.0.1:80", "10.0.0.1:8080")
	x.add(zone{}, flows[:all/2]...)
	connections := make([]Connection, all)
	for i, f := range flows {
		connections[i] = Connection{model.TCP, netip.AddrPortFrom(f.Client, f.Returns.Port()), f.Dialled}
	}
	b.ReportAllocs()
	x.do(func() error {
		for b.Loop() {
			if _, err := (Netlink{}).EntriesOf(connections); err != nil {
				return err
			}
		}
		return nil
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/all, "ns/connection")
}
