package config

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// ruleFlags returns the flags that the rules depend on, of a command line.
func ruleFlags(t *testing.T, args ...string) *Flags {
	t.Helper()
	f := NewFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	f.AddRules()
	f.AddCounters("", "")
	f.AddHealthChecks("")
	if err := f.set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func loaded(t *testing.T, f *Flags) *Config {
	t.Helper()
	c, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFollow: 12.86. A command line without flags that follows the settings of another one
// leads to the same rules, flags have precedence, and what was taken is named.
func TestFollow(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"--nodeport-addresses=10.0.0.0/8,localhost", "--load-balancer-cidrs=192.0.2.0/24,198.51.100.0/24", "--scheduler=maglev", "--hostname-override=Node-1"},
		{"--feature-gates=AllowServiceExternalIPs=false", "--cluster-cidr=10.1.0.0/16,fd00::/64", "--affinity-size=7", "--health-checks", "--observe=refusals", "--observe-group=7"},
		{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=br0", "--bind-address=10.0.0.1", "--endpoint-metrics"},
		{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth", "--masquerade-all", "--answer-ping", "--service-metrics"},
	} {
		running := loaded(t, ruleFlags(t, args...))
		f := ruleFlags(t)
		taken, unknown, err := f.Follow(running.RuleSettings())
		if err != nil || len(unknown) > 0 {
			t.Fatalf("%v: %v, unknown %v", args, err, unknown)
		}
		if got := loaded(t, f); !reflect.DeepEqual(got.Node, running.Node) || got.Own.HealthChecks != running.Own.HealthChecks {
			t.Errorf("%v: %+v, want %+v", args, got.Node, running.Node)
		}
		if len(taken) < len(args) {
			t.Errorf("%v: taken %v", args, taken)
		}
	}
}

// TestFollowPrecedence: flags, and fields of a configuration file, have precedence (12.86).
func TestFollowPrecedence(t *testing.T) {
	running := loaded(t, ruleFlags(t, "--scheduler=random", "--masquerade-all", "--load-balancer-cidrs=192.0.2.0/24")).RuleSettings()
	f := ruleFlags(t, "--scheduler=source-hash", "--load-balancer-cidrs=")
	if taken, _, err := f.Follow(running); err != nil || !slices.Equal(taken, []string{"--masquerade-all=true"}) {
		t.Errorf("taken %v, %v", taken, err)
	}
	f = ruleFlags(t)
	f.ConfigFile = "config.conf"
	if taken, _, err := f.Follow(running); err != nil || !slices.Equal(taken, []string{"--load-balancer-cidrs=192.0.2.0/24", "--scheduler=random"}) {
		t.Errorf("with a file: taken %v, %v", taken, err)
	}
	other := maps.Clone(running)
	other["from-the-future"] = "x"
	if _, unknown, err := ruleFlags(t).Follow(other); err != nil || !slices.Equal(unknown, []string{"--from-the-future"}) {
		t.Errorf("unknown %v, %v", unknown, err)
	}
	other["affinity-size"] = "many"
	if _, _, err := ruleFlags(t).Follow(other); err == nil {
		t.Error("a wrong value is no error")
	}
}
