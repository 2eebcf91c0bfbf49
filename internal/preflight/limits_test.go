package preflight

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestLimitsAreOptional: a kernel without a module for limits lacks nothing else (4.93).
func TestLimitsAreOptional(t *testing.T) {
	for _, name := range []string{"limit", "connlimit"} {
		problems, err := check(lacksExpression(name), model.Families[:], Use{})
		if err != nil || len(problems) != 2 {
			t.Fatalf("without %s: %v, %v; want one problem for each family", name, problems, err)
		}
		for _, p := range problems {
			if !p.Limits || !strings.Contains(p.String(), "load the module nft_"+name) {
				t.Errorf("without %s: %s, for limits only: %t", name, p, p.Limits)
			}
		}
	}
}

// TestObservingIsOptional: 16.5. A kernel that cannot count or log refused connections lacks
// nothing else, and is not asked unless they are observed.
func TestObservingIsOptional(t *testing.T) {
	refused := func(m *codec.Message, expression string) bool {
		return m.Type == unix.NFT_MSG_NEWRULE && strings.HasPrefix(m.Chain.Name, "refused-") && has(m, expression)
	}
	for name, c := range map[string]struct{ lacks, answer string }{
		"nft_log":       {"log", "log"},
		"nfnetlink_log": {"log", "log"},
		"several expressions in elements, as 5.10": {"dynset", "dynset"},
		"the same without an offset, as 5.4":       {"dynset", ""},
	} {
		k := fake{refuses: func(m *codec.Message) (string, error) {
			if refused(m, c.lacks) {
				return c.answer, unix.ENOENT
			}
			return "", nil
		}}
		problems, err := check(k, model.Families[:], Use{Observe: true})
		if err != nil || len(problems) != 2 {
			t.Fatalf("without %s: %v, %v; want one problem for each family", name, problems, err)
		}
		for _, p := range problems {
			if !p.Observe || p.Limits || !strings.Contains(p.String(), "load the module nft_log and nfnetlink_log") || !strings.Contains(p.String(), "kernel 5.11") {
				t.Errorf("without %s: %s, for refusals only: %t", name, p, p.Observe)
			}
		}
		if problems, err := check(k, model.Families[:], Use{}); err != nil || len(problems) > 0 {
			t.Errorf("without %s, and without --observe: %v, %v", name, problems, err)
		}
	}
}
