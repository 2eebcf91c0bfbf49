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
	f.StringVar(&c.PodInterface, "pod-bridge-interface", "", "")
	f.StringVar(&c.PodInterface, "pod-interface-name-prefix", "", "")
	f.BoolVar(&c.MasqueradeAll, "masquerade-all", false, "")
	f.BoolVar(&c.Counters, "service-metrics", false, "")
	f.Func("detect-local-mode", "", func(s string) (err error) { c.DetectLocal, err = model.ParseDetectMode(s); return err })
	f.Func("scheduler", "", func(s string) (err error) { c.Scheduler, err = model.ParseScheduler(s); return err })
	prefixes("cluster-cidr", &c.ClusterCIDRs)
	prefixes("nodeport-addresses", &c.NodePortAddresses)
	if err := f.Parse(strings.Fields(text)); err != nil {
		t.Fatal(err)
	}
	return c
}
