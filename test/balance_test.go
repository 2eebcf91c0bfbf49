package test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// names asks several times, each on a new connection, and returns the names of
// the endpoints that answered.
func names(t *testing.T, n int, from *netlab.Host, network string, to netip.AddrPort) []string {
	t.Helper()
	got := make([]string, n)
	for i := range got {
		got[i] = ask(t, from, network, to).Name
	}
	return got
}

// roundRobin checks that in any run of consecutive answers no endpoint of n has
// two more than another. A Service that is alone has two counters, and on each
// its endpoints take turns.
func roundRobin(t *testing.T, got []string, n int) {
	t.Helper()
	for i := range got {
		seen := make(map[string]int)
		for j, name := range got[i:] {
			seen[name]++
			least, most := len(got), 0
			for _, count := range seen {
				least, most = min(least, count), max(most, count)
			}
			if len(seen) < n {
				least = 0
			}
			if len(seen) > n || most-least > 2 {
				t.Fatalf("answers %v: those from %d to %d are not from %d endpoints in turn", got, i, i+j, n)
			}
		}
	}
}

// wantShares compares the numbers of answers by endpoint. All that are wanted are
// equal; endpoints that take turns differ by two at the most.
func wantShares(t *testing.T, what string, want map[string]int, names []string) {
	t.Helper()
	got := count(names)
	equal := len(got) == len(want)
	least, most := len(names), 0
	for name, n := range got {
		equal = equal && want[name] > 0
		least, most = min(least, n), max(most, n)
	}
	if !equal || most-least > 2 {
		t.Errorf("%s: %v, want about %v", what, got, want)
	}
}

func TestRoundRobin(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.apply(web)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		const connections = 240
		got := names(t, connections, c.Client, network, web.clusterIP(family))
		roundRobin(t, got, 3)
		// 7 % are expected, and 33 % if each were chosen at random.
		if n := repeats(got); n > connections/5 {
			t.Errorf("%d of %d answers are those of the connection before", n, connections)
		}
	})
}

// Two services with equally many endpoints must not share all turns of one
// counter. One connection in eight uses the counter that they have in common,
// and only those can be uneven: to miss the bounds, 19 of 40 would have to.
func TestAlternatingServicesBothBalance(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	api := service{Name: "api", N: 2, Pods: c.Pods}
	c.apply(web, api)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		var fromWeb, fromAPI []string
		for range 40 {
			fromWeb = append(fromWeb, ask(t, c.Client, network, web.clusterIP(family)).Name)
			fromAPI = append(fromAPI, ask(t, c.Client, network, api.clusterIP(family)).Name)
		}
		if least, most := shares([][]string{fromWeb, fromAPI}, 2); least < 0.5 || most > 1.5 {
			t.Errorf("an endpoint gets %.2f to %.2f of its share: %v, %v", least, most, fromWeb, fromAPI)
		}
	})
}

// Clients that call many Services in a fixed order, as a program does that fans
// a request out, use each endpoint: that the others step on a counter must not
// mean that a Service always meets the same slot.
//
// What is left to chance are the connections that take the counter in common. With
// 8 Services on a counter, which moves it by twice the number of endpoints in a round,
// 120 connections to one of them are as even as 55 to endpoints chosen at random; that
// one of four then gets less than a tenth of its share has a probability of three in a
// million. With fewer Services, 80 connections are more even than that.
func TestFixedOrderUsesAllEndpoints(t *testing.T) {
	const endpoints = 4
	c := newCluster(t, endpoints)
	clients := c.crowd(3) // one alone has not enough ports
	for n := 2; n <= endpoints; n++ {
		for _, services := range []struct{ count, rounds int }{{20, 80}, {128, 120}} {
			if services.count > 20 && n < endpoints {
				continue // what 8 Services on a counter leave out of fewer endpoints, they leave out of 4
			}
			t.Run(fmt.Sprintf("%d services of %d endpoints", services.count, n), func(t *testing.T) {
				c := c.in(t)
				var all []service
				for i := range services.count {
					all = append(all, service{Name: fmt.Sprintf("web-%d", i), N: i + 1, Pods: c.Pods[:n], OnlyTCP: true})
				}
				c.apply(all...)
				answers := make([][]string, len(all))
				for round := range services.rounds {
					for i, s := range all {
						answers[i] = append(answers[i], ask(t, clients[round%len(clients)], "tcp", s.clusterIP(model.IPv4)).Name)
					}
				}
				least, most := shares(answers, n)
				fmt.Fprintf(t.Output(), "an endpoint gets %.2f to %.2f of its share\n", least, most)
				if least < 0.1 || most > 2.5 {
					t.Error("connections are not spread")
				}
			})
		}
	}
}

// shares returns the least and the most that an endpoint gets of the connections
// to its Service: 1 is as many as all others get.
func shares(answers [][]string, endpoints int) (least, most float64) {
	least = float64(endpoints)
	for _, names := range answers {
		n := count(names)
		if len(n) < endpoints {
			least = 0
		}
		for _, got := range n {
			share := float64(got*endpoints) / float64(len(names))
			least, most = min(least, share), max(most, share)
		}
	}
	return least, most
}
