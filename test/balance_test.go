package test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
)

// names asks several times, each on a new connection, and returns who answered.
func names(t *testing.T, n int, from *netlab.Host, network string, to netip.AddrPort) []string {
	t.Helper()
	got := make([]string, n)
	for i := range got {
		got[i] = ask(t, from, network, to).Name
	}
	return got
}

// roundRobin checks that any n consecutive answers came from n endpoints.
func roundRobin(t *testing.T, got []string, n int) {
	t.Helper()
	for i := 0; i+n <= len(got); i++ {
		window := slices.Clone(got[i : i+n])
		slices.Sort(window)
		if len(slices.Compact(window)) != n {
			t.Fatalf("answers %v: some %d in a row are not from %[2]d endpoints", got, n)
		}
	}
}

func TestRoundRobin(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.apply(web)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		roundRobin(t, names(t, 12, c.Client, network, web.clusterIP(family)), 3)
	})
}

// Two services with as many endpoints each must not take turns on one counter.
func TestAlternatingServicesBothBalance(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	api := service{Name: "api", N: 2, Pods: c.Pods}
	c.apply(web, api)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		var fromWeb, fromAPI []string
		for range 8 {
			fromWeb = append(fromWeb, ask(t, c.Client, network, web.clusterIP(family)).Name)
			fromAPI = append(fromAPI, ask(t, c.Client, network, api.clusterIP(family)).Name)
		}
		roundRobin(t, fromWeb, 2)
		roundRobin(t, fromAPI, 2)
	})
}
