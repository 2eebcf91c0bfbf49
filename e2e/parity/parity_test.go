// Package parity holds kube-proxy, as it is built from the release of Kubernetes, beside
// nftproxy: flags, configuration, feature gates, metrics, events, and what clients get
// from each kind of frontend. A difference without a decision fails the test, and so does
// a decision without a difference; docs/parity.md has both.
package parity

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

const pagePath = "../../docs/parity.md"

// TestParity compares both programs and the page. With PAGE it writes the page instead.
func TestParity(t *testing.T) {
	programs := []*table{flags(t), fields(t), gates(t), events(t)}
	var k, n observation
	t.Run("node", func(t *testing.T) { // ends when both have
		t.Run(testbed.KubeProxy.Name, func(t *testing.T) { k = observe(t, kubeProxy) })
		t.Run(testbed.NFTProxy.Name, func(t *testing.T) { n = observe(t, nftproxy) })
	})
	if t.Failed() {
		return
	}
	all := append(programs, metrics(k, n), flows(k, n))
	decided := map[string]bool{}
	for _, x := range all {
		x.check(t, decided)
	}
	for key := range decisions {
		if !decided[key] {
			t.Errorf("the decision about %q is about no difference: remove it", key)
		}
	}
	if t.Failed() {
		return
	}
	text := page(all)
	if path := os.Getenv("PAGE"); path != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != text {
		t.Errorf("docs/parity.md is not what the programs do: run make parity, and read its diff")
	}
}
