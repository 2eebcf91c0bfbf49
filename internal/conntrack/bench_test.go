package conntrack

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// BenchmarkClean cleans up beside entries that are unrelated, of TCP or of UDP,
// with or without a thousand stale ones. It needs root, and room in the node's
// nf_conntrack_max for the largest.
func BenchmarkClean(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			b.Run(fmt.Sprintf("%d-%s", n, p), func(b *testing.B) {
				if room := limit(b); room < n+2000 {
					b.Skipf("net.netfilter.nf_conntrack_max is %d; raise it to %d", room, n+2000)
				}
				x := newTable(b)
				x.add(zone{}, clients(n, p, "198.51.100.1:443", "198.51.100.1:443")...)
				for _, stale := range []int{0, 1000} {
					b.Run(fmt.Sprint(stale, "-stale"), func(b *testing.B) { clean(b, x, stale) })
				}
			})
		}
	}
}

func limit(b *testing.B) int {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		b.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func clean(b *testing.B, x *table, stale int) {
	r := routing("10.0.0.1:8080", "10.96.0.1:80")
	flows := clients(stale, model.UDP, "10.96.0.1:80", "10.0.0.2:8080")
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		x.add(zone{}, flows...)
		deleted := 0
		c := newCleaner(Netlink{}, &bytes.Buffer{}, Config{})
		c.Observer = (*deletions)(&deleted)
		b.StartTimer()
		x.do(func() error { everything(c, r.Routes, nil); c.Clean(); return nil })
		if deleted != stale {
			b.Fatalf("%d deleted, want %d", deleted, stale)
		}
	}
}

// deletions counts the flows that are deleted.
type deletions int

func (d *deletions) Cleaned(_ model.Family, _ time.Duration, deleted int) { *d += deletions(deleted) }

// region has Services with four frontends each, all of one protocol, with four
// endpoints.
func region(services int, protocolOf func(i int) model.Protocol) (routes []model.Route) {
	for i := range services {
		one := routing("10.0.0.1:80 10.0.0.2:80 10.0.0.3:80 10.0.0.4:80", "10.96.0.1:80", "10.97.0.1:80", "10.98.0.1:80", "192.0.2.1:30080")
		for _, route := range one.Routes {
			if route.Frontend.Protocol == protocolOf(i) {
				route.Frontend.Port = uint16(i)
				routes = append(routes, route)
			}
		}
	}
	return routes
}

// BenchmarkReset looks at everything and finds that there is nothing to do. One
// of a hundred Services is of UDP, the others are of TCP.
func BenchmarkReset(b *testing.B) {
	for _, services := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			routes := region(services, func(i int) model.Protocol {
				if i%100 == 0 {
					return model.UDP
				}
				return model.TCP
			})
			c := newCleaner(&broken{}, &bytes.Buffer{}, Config{})
			everything(c, routes, nil)
			c.Clean()
			b.ReportAllocs()
			for b.Loop() {
				everything(c, routes, nil)
				c.Clean()
			}
		})
	}
}

// BenchmarkChange replaces an endpoint of one Service among others that are all
// of TCP or all of UDP. No connection is tracked there, but for UDP the kernel
// goes through its whole table, which has the size of the node's. It needs root.
func BenchmarkChange(b *testing.B) {
	for _, p := range []model.Protocol{model.TCP, model.UDP} {
		for _, services := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("%s-%d", p, services), func(b *testing.B) {
				routes := region(services, func(int) model.Protocol { return p })
				c := newCleaner(Netlink{}, &bytes.Buffer{}, Config{})
				newTable(b).do(func() error {
					everything(c, routes, nil)
					c.Clean()
					there, back := replaced(routes[:4])
					b.ReportAllocs()
					for b.Loop() {
						c.Change(there, nil)
						c.Clean()
						there, back = back, there
					}
					return nil
				})
			})
		}
	}
}

// replaced returns the changes when another endpoint takes the place of the last
// one of a Service, and those when it comes back.
func replaced(before []model.Route) (there, back []model.RouteChange) {
	now := slices.Clone(before)
	serving := slices.Clone(before[0].Choice.Serving)
	serving[len(serving)-1] = endpoint(addrPort("10.0.0.5:80"))
	choice := &model.Choice{Serving: serving}
	for i := range now {
		now[i].Choice = choice
	}
	return changes(before, now), changes(now, before)
}
