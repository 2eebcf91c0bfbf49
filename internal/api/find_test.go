package api_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestCheckOwners: no plan follows the answer of a user that could not run nftproxy.
func TestCheckOwners(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:10249")
	if err := api.CheckOwners(at, []int{0, 7}, []int{7, 0}); err != nil {
		t.Error(err)
	}
	if err := api.CheckOwners(at, []int{0, 8}, []int{7, 0}); !errors.Is(err, api.ErrNoDaemon) || !strings.Contains(err.Error(), "user 8") {
		t.Errorf("%v", err)
	}
}

// TestLocalAffinityMap: this package repeats a name from the rules, which it must not import.
func TestLocalAffinityMap(t *testing.T) {
	if api.LocalAffinityMap != nft.LocalAffinityMap {
		t.Errorf("%s, and in the rules %s", api.LocalAffinityMap, nft.LocalAffinityMap)
	}
}
