package faults

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// remembered is the number of clients that the map has room for, in each
// family.
const remembered = 8

// TestFullAffinityMap: if the map is full, all clients are served, and those in
// the map keep their endpoints while Services come and go, one is scaled, and
// the program is restarted or killed.
func TestFullAffinityMap(t *testing.T) {
	n := newNode(t, 4)
	n.flags = []string{"--affinity-size", fmt.Sprint(remembered)}
	sticky := service{name: "sticky", n: 1, pods: n.Pods[:2], sticky: true}
	other := service{name: "other", n: 2, pods: n.Pods[2:], sticky: true}
	wide := sticky
	wide.pods = n.Pods
	n.write(sticky)
	p := n.start()
	n.applied()
	load := n.startLoad(slices.Repeat([]service{sticky}, remembered)...) // twice as many, with TCP and UDP
	n.eventually(func() error {
		if all := n.bound(); len(all) != 2*remembered {
			return fmt.Errorf("%d clients are remembered in both families, want %d", len(all), 2*remembered)
		}
		return nil
	})
	before := n.bound()
	for _, step := range []struct {
		name     string
		do       func()
		services []service
	}{
		{"a service comes", func() {}, []service{sticky, other}},
		{"scaled up", func() {}, []service{wide, other}},
		{"SIGTERM", func() { p.stop(); p = n.start() }, []service{wide, other}},
		{"SIGKILL", func() { p.kill(); p = n.start() }, []service{wide, other}},
		{"a service goes", func() {}, []service{wide}},
	} {
		start := time.Now()
		n.write(step.services...)
		step.do()
		n.followed()
		report(t, "affinity map full, "+step.name, p, 0, 0, time.Since(start), load)
		if diff := cmp.Diff(before, n.bound()); diff != "" {
			t.Errorf("%s: the clients that are remembered and their endpoints, before and after:\n%s", step.name, diff)
		}
	}
	p.stop()
}

var elements = regexp.MustCompile(`(?s)elements = \{(.*?)\}`)

// bound returns the clients that are remembered, with their endpoints.
func (n *node) bound() []string {
	n.t.Helper()
	var all []string
	for _, family := range []string{"ip", "ip6"} {
		if found := elements.FindStringSubmatch(n.nft("--stateless", "list", "map", family, "nftproxy", "affinity")); found != nil {
			for e := range strings.SplitSeq(found[1], ",") {
				all = append(all, strings.TrimSpace(e))
			}
		}
	}
	slices.Sort(all)
	return all
}
