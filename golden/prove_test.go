package golden

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/prove"
	"github.com/nftproxy/nftproxy/internal/testkit/proof"
)

// TestProof compares what packets of all classes experience by the bytecode of each case, and of
// the plan for each change, with what the objects ask for. It does so for all rules, and as an agent
// follows the changes.
func TestProof(t *testing.T) {
	for _, kind := range []string{goldens, behaviours} {
		forEach(t, kind, func(t *testing.T, c *testCase) {
			for _, kernel := range []*proof.Kernel{{Between: true}, {Between: true, Follows: true}} {
				for _, p := range c.phases {
					if p.err != nil {
						continue
					}
					report, err := kernel.Become(p.proof())
					if err != nil {
						t.Fatal(err)
					}
					p.checkProof(t, report)
				}
			}
		})
	}
}

// TestProofInKernel is the same by what the kernel lists.
func TestProofInKernel(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		s := newSandbox(t)
		for _, p := range c.phases {
			s.apply(t, p.rules)
			rules, err := s.kernel.ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			p.checkProof(t, prove.NewWorld(p.input.Snapshot, p.flags.Config).Prove(rules))
		}
	})
}

func (p *phase) proof() proof.Phase {
	return proof.Phase{Snapshot: p.input.Snapshot, Config: p.flags.Config, Others: p.others}
}

func (p *phase) checkProof(t *testing.T, report *prove.Report) {
	t.Helper()
	var text strings.Builder
	if err := report.Print(&text); err != nil || report.Wrong > 0 {
		t.Errorf("%s: %v\n%s", p.setup[len(p.setup)-1].Name, err, text.String())
	}
}
