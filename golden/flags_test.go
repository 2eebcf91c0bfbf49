package golden

import (
	"flag"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// flags are the flags of a case: those of the command, --interface-addresses for
// the addresses that the machine has, --nodeport-primary,
// --masquerade-primary and --no-external-ips.
type flags struct {
	model.Config
	proxyName string
}

func parseFlags(t *testing.T, text string) flags {
	t.Helper()
	c := flags{Config: model.Config{NodeName: "node-1"}}
	f := flag.NewFlagSet("flags", flag.ContinueOnError)
	f.StringVar(&c.NodeName, "hostname-override", c.NodeName, "")
	f.TextVar(&c.BindAddress, "bind-address", netip.Addr{}, "")
	f.BoolVar(&c.NoExternalIPs, "no-external-ips", false, "") // stands for --feature-gates=AllowServiceExternalIPs=false
	f.BoolVar(&c.MasqueradeAll, "masquerade-all", false, "")
	f.BoolVar(&c.Counters, "service-metrics", false, "")
	f.BoolVar(&c.EndpointCounters, "endpoint-metrics", false, "")
	f.StringVar(&c.PodInterface, "pod-bridge-interface", "", "")
	f.StringVar(&c.PodInterface, "pod-interface-name-prefix", "", "")
	f.BoolVar(&c.AnswerPing, "answer-ping", false, "")
	f.Func("observe", "", func(s string) (err error) {
		c.Observe.Level, err = model.ParseObserveLevel(s)
		if c.Observe.Group = 0; c.Observe.Refusals() {
			c.Observe.Group = model.DefaultObserveGroup
		}
		return err
	})
	list(f, "masquerade-from", netip.ParseAddr, &c.MasqueradeFrom)
	f.BoolVar(&c.MasqueradePrimary, "masquerade-primary", false, "") // stands for "primary" beside addresses
	list(f, "load-balancer-cidrs", netip.ParsePrefix, &c.LoadBalancerCIDRs)
	f.Func("affinity-size", "", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 32)
		c.AffinityCapacity = uint32(n)
		return err
	})
	f.StringVar(&c.proxyName, "service-proxy-name", "", "")
	f.Func("scheduler", "", func(s string) (err error) {
		c.Scheduler, err = model.ParseScheduler(s)
		return err
	})
	f.Func("detect-local-mode", "", func(s string) (err error) {
		c.DetectLocal, err = model.ParseDetectMode(s)
		return err
	})
	list(f, "cluster-cidr", netip.ParsePrefix, &c.ClusterCIDRs)
	list(f, "nodeport-addresses", netip.ParsePrefix, &c.NodePortAddresses)
	f.BoolVar(&c.NodePortPrimary, "nodeport-primary", false, "") // stands for "primary" beside ranges
	list(f, "interface-addresses", netip.ParseAddr, &c.InterfaceAddresses)
	if err := f.Parse(strings.Fields(text)); err != nil {
		t.Fatal(err)
	}
	c.BesideAnother = c.proxyName != ""
	return c
}

// list adds a flag with values separated by commas.
func list[T any](f *flag.FlagSet, name string, parse func(string) (T, error), out *[]T) {
	f.Func(name, "", func(text string) error {
		for s := range strings.SplitSeq(text, ",") {
			v, err := parse(s)
			if err != nil {
				return err
			}
			*out = append(*out, v)
		}
		return nil
	})
}
