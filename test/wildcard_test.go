package test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

const wildcards = `
kind: Balance
name: all
listen: ":80"
backends: ["POD4:8080", "[POD6]:8080"]
---
kind: Balance
name: one
listen: lo:81
backends: ["POD4:8080", "[POD6]:8080"]
`

// TestWildcard: a Balance that listens on all addresses of the machine, or of an interface, is
// served on them, and on others as they come and go (1.61, 1.62).
func TestWildcard(t *testing.T) {
	w := newWard(t, 1)
	input := strings.NewReplacer("POD4", w.Pods[0].IPv4.String(), "POD6", w.Pods[0].IPv6.String()).Replace(wildcards)
	if err := os.WriteFile(w.file, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	served := func(a netip.Addr, port uint16, want bool) {
		t.Helper()
		eventually(t, func() error {
			answer, err := w.Client.Ask("tcp", netip.AddrPortFrom(a, port), silence)
			if got := err == nil && answer.Name == w.Pods[0].Name; got != want {
				return fmt.Errorf("%s port %d is served: %t, want %t (%w)", a, port, got, want, err)
			}
			return nil
		})
	}
	further := map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("203.0.113.77"), model.IPv6: netip.MustParseAddr("2001:db8:77::1")}
	for _, f := range model.Families {
		served(w.Node.Address(f), 80, true)
		served(w.Node.Address(f), 81, false)
		served(further[f], 80, false)
		if err := w.Node.AddAddress(further[f]); err != nil {
			t.Fatal(err)
		}
		served(further[f], 80, true)
		served(further[f], 81, true)
		if err := w.Node.RemoveAddress(further[f]); err != nil {
			t.Fatal(err)
		}
		served(further[f], 80, false)
		served(w.Node.Address(f), 80, true)
	}
}
