package show

import (
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/words"
)

// TestNothingSelected: 11.27. What a machine with Balances alone does not have, it counts in the words of
// Balances.
func TestNothingSelected(t *testing.T) {
	for in, want := range map[words.Vocabulary]string{words.Balance: "0 Balances,", words.Kubernetes: "0 Services,", words.Mixed: "0 Services and Balances,"} {
		var b strings.Builder
		if err := Status(&b, &api.Status{From: api.FromDaemon, Healthy: true, Served: api.Served{Filtered: true}, Words: in}, View{Now: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
