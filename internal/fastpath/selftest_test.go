package fastpath

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// hasFlowtables asks nft whether the kernel has flow tables.
func hasFlowtables(t *testing.T) bool {
	t.Helper()
	ns, err := netlab.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	add := exec.Command("nft", "-f", "-")
	add.Stdin = strings.NewReader("table inet t { flowtable f { hook ingress priority 0; }; chain c { flow add @f; }; }")
	if out, err := ns.Output("nft", "--version"); err != nil {
		t.Fatal(err, out)
	}
	return ns.Run(add) == nil
}

// 9.35: a kernel that has flow tables passes the test, and one without them says so.
func TestSelfTest(t *testing.T) {
	err := SelfTest(t.Context())
	if hasFlowtables(t) {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), "CONFIG_NF_FLOW_TABLE") {
		t.Errorf("got %v on a kernel without flow tables, want an error that names the options", err)
	}
}

// 9.35: a kernel that breaks connections does not pass.
func TestSelfTestFails(t *testing.T) {
	if !hasFlowtables(t) {
		t.Log("this kernel has no flow tables: the test fails before its stages") // TestSelfTest has seen it
		return
	}
	injected := errors.New("injected")
	for stage, want := range map[string]struct {
		harm func(*test) error
		text string
	}{
		// Without devices, a flow table gets no packet.
		"connections through a flow table": {func(t *test) error { return t.table.restart() }, "packets still pass the rules"},
		// The new endpoint of a flow of UDP is down.
		"an endpoint that is replaced": {func(t *test) error {
			defer func() { t.listening = slices.Delete(t.listening, 5, 6) }()
			return t.listening[5].Close()
		}, "no answer"},
		"a network device that goes and comes": {func(*test) error { return injected }, injected.Error()},
	} {
		t.Run(stage, func(t *testing.T) {
			err := selfTest(context.Background(), func(at string, test *test) error {
				if at != stage {
					return nil
				}
				return want.harm(test)
			})
			if err == nil || !strings.Contains(err.Error(), want.text) {
				t.Errorf("got %v, want an error with %q", err, want.text)
			}
		})
	}
}
