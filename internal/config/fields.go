package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
)

// InFile reports whether kube-proxy's configuration file has a field for a flag.
func InFile(flag string) bool { return fields()[flag] != "" }

// fields returns the field of the file that means the same, by flag.
var fields = sync.OnceValue(func() map[string]string {
	f := NewFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	f.AddRules()
	f.AddCluster()
	f.AddLogging()
	f.AddDaemon()
	paths := make(map[uintptr]string)
	for path, v := range leafFields(f.kube) {
		paths[v.Addr().Pointer()] = path
		if v.Kind() == reflect.Pointer {
			paths[v.Pointer()] = path
		}
	}
	out := map[string]string{"healthz-port": "healthzBindAddress", "metrics-port": "metricsBindAddress"}
	f.set.VisitAll(func(g *pflag.Flag) {
		if path, has := paths[variableOf(g.Value)]; has {
			out[g.Name] = path
		}
	})
	return out
})

// variableOf returns the address of the variable that a flag sets: the flag's value
// is a pointer to it, or a struct that begins with such a pointer.
func variableOf(value pflag.Value) uintptr {
	v := reflect.ValueOf(value)
	if s := reflect.Indirect(v); s.Kind() == reflect.Struct && s.Field(0).Kind() == reflect.Pointer {
		return s.Field(0).Pointer()
	}
	return v.Pointer()
}

// leafFields returns the fields of a configuration without those that have fields of their own, by name.
func leafFields(k *v1alpha1.KubeProxyConfiguration) map[string]reflect.Value {
	out := make(map[string]reflect.Value)
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		t := v.Type()
		if t.Kind() != reflect.Struct || !strings.HasSuffix(t.Name(), "Configuration") && !strings.HasSuffix(t.Name(), "Options") {
			out[path] = v
			return
		}
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				walk(v.FieldByIndex(f.Index), strings.TrimPrefix(path+"."+name, "."))
			}
		}
	}
	walk(reflect.ValueOf(k).Elem(), "")
	return out
}

// otherNames are the flags that mean the same as one above.
var otherNames = []string{"healthz-port", "metrics-port", "iptables-sync-period", "iptables-min-sync-period"}

// flagOf returns the flag for a field; empty: there is none.
func flagOf(field string) string {
	for _, name := range slices.Sorted(maps.Keys(fields())) {
		if fields()[name] == field && !slices.Contains(otherNames, name) {
			return "--" + name
		}
	}
	return ""
}

// fieldProblem returns an error about a field that names both the field and its flag, first the one in use.
func (c *Config) fieldProblem(field, format string, args ...any) error {
	problem := fmt.Sprintf(format, args...)
	switch name := flagOf(field); {
	case c.File == nil && name != "":
		return fmt.Errorf("%s: %s (in a file: %s)", name, problem, field)
	case c.File == nil:
		return fmt.Errorf("%s: %s", field, problem)
	case name != "":
		return fmt.Errorf("%s: %s: %s (as a flag: %s)", c.File.Path, field, problem, name)
	}
	return fmt.Errorf("%s: %s: %s", c.File.Path, field, problem)
}

// AddHealthChecks adds whether Services of an API server have health checks, with its usage.
func (f *Flags) AddHealthChecks(usage string) {
	f.add(declare.HealthAndMetrics, &f.own.HealthChecks, HealthChecks, usage)
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

// Follow sets the flags that are not on the command line, nor in the configuration file that it names, to the
// settings that [Config.RuleSettings] of another process has returned. taken has the ones that differed, for
// example "--scheduler=random", and unknown the names of the ones that this version does not have.
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
