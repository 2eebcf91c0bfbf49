package golden

import (
	"flag"
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// parseFlags reads the flags of a case, which are those of the command.
func parseFlags(t *testing.T, text string) model.Config {
	t.Helper()
	c := model.Config{NodeName: "node-1"}
	f := flag.NewFlagSet("flags", flag.ContinueOnError)
	f.StringVar(&c.NodeName, "hostname-override", c.NodeName, "")
	f.TextVar(&c.BindAddress, "bind-address", netip.Addr{}, "")
	prefixes := func(name string, p *[]netip.Prefix) {
		f.Func(name, "", func(s string) error {
			for _, one := range strings.Split(s, ",") {
				prefix, err := netip.ParsePrefix(one)
				if err != nil {
					return err
				}
				*p = append(*p, prefix)
			}
			return nil
		})
	}
	prefixes("cluster-cidr", &c.ClusterCIDRs)
	prefixes("nodeport-addresses", &c.NodePortAddresses)
	if err := f.Parse(strings.Fields(text)); err != nil {
		t.Fatal(err)
	}
	return c
}
