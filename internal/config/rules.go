package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
)

const hostnameOverride = "hostname-override"

// HealthChecks is the name of the flag that [Flags.AddHealthChecks] adds.
const HealthChecks = "health-checks"

// AddHealthChecks adds whether Services of an API server have health checks, with its usage.
func (f *Flags) AddHealthChecks(usage string) {
	f.in(declare.HealthAndMetrics, func() { f.addBool(&f.own.HealthChecks, HealthChecks, usage) })
}

// RuleSettings returns the settings on which the rules depend, by the names of their flags
// and as these take them, whether they come from flags or from a file. Lists have commas.
func (c *Config) RuleSettings() map[string]string {
	f := &Flags{set: pflag.NewFlagSet("", pflag.ContinueOnError), kube: c.Kube.DeepCopy(), own: c.Own}
	f.AddRules()
	f.AddCounters("", "")
	f.AddHealthChecks("")
	out := make(map[string]string)
	f.set.VisitAll(func(g *pflag.Flag) { out[g.Name] = textOf(g.Value) })
	delete(out, "config")
	out[hostnameOverride] = c.Node.NodeName
	out[Observe] = c.Node.Observe.Level.String()              // a kernel without NFLOG turns it off
	out[ServiceMetrics] = strconv.FormatBool(c.Node.Counters) // the counters of endpoints imply them
	return out
}

// Follow sets the flags that are not on the command line, nor in the configuration file
// that it names, to the settings that [Config.RuleSettings] of another process has returned.
// taken has the ones that differed, for example "--scheduler=random", and unknown the names
// of the ones that this version does not have.
func (f *Flags) Follow(settings map[string]string) (taken, unknown []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		g, value := f.set.Lookup(name), settings[name]
		switch {
		case g == nil:
			unknown = append(unknown, "--"+name)
			continue
		case g.Changed || InFile(name) && f.ConfigFile != "" || textOf(g.Value) == value:
			continue
		}
		if err := setText(g.Value, value); err != nil {
			return taken, unknown, fmt.Errorf("--%s=%s: %w", name, value, err)
		}
		if host, err := os.Hostname(); name != hostnameOverride || err != nil || !strings.EqualFold(host, value) {
			taken = append(taken, "--"+name+"="+value)
		}
	}
	return taken, unknown, nil
}

// textOf returns the value of a flag as [setText] takes it.
func textOf(v pflag.Value) string {
	if list, ok := v.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return v.String()
}

// setText sets the value of a flag as if it were not on the command line.
func setText(v pflag.Value, text string) error {
	list, ok := v.(pflag.SliceValue)
	switch {
	case !ok:
		return v.Set(text)
	case text == "":
		return list.Replace(nil)
	}
	return list.Replace(strings.Split(text, ","))
}
