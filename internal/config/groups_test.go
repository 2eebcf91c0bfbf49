package config

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
)

// TestFlagsHaveGroups: each flag that help shows is declared in a group.
func TestFlagsHaveGroups(t *testing.T) {
	f := NewFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	f.AddRules()
	f.AddCluster()
	f.AddLogging()
	f.AddDaemon()
	f.set.VisitAll(func(g *pflag.Flag) {
		if declare.GroupOf(g) == "" && !g.Hidden {
			t.Errorf("--%s is in no group: declare it in one", g.Name)
		}
	})
}
