// Package config loads the configuration of kube-proxy, from its file or its flags, and
// a few settings that kube-proxy does not have.
package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Config is a valid configuration with all defaults filled in.
type Config struct {
	// Kube has the settings of kube-proxy. Its pointers are not nil, except
	// OOMScoreAdj after [Flags.WithoutCluster].
	Kube v1alpha1.KubeProxyConfiguration
	// Own has the settings that only nftproxy has.
	Own Own
	// Master is the URL of the API server, in place of the one in the kubeconfig; empty: that one.
	Master string
	// Context is the name of the context of the kubeconfig to use; empty: its current-context.
	Context string
	// Node has the settings that the rules depend on.
	Node model.Config
	// File is where Kube was read; nil: it comes from flags.
	File *File
	// Remarks are warnings about the configuration.
	Remarks []Remark
}

// Own are the settings that are no part of kube-proxy's file.
type Own struct {
	Scheduler           string // of Services that name none
	AffinitySize        uint32 // clients that each family remembers
	ServiceProxyName    string // label value of the Services to serve (1.2)
	ServiceMetrics      bool   // metrics of each Service
	EndpointMetrics     bool   // counters of each endpoint, and metrics of each Service
	HealthChecks        bool   // also of Services of an API server
	Web                 bool   // serve a page with live data
	ConntrackTCPCleanup bool   // also delete entries of TCP connections to endpoints that are gone
	TakeOver            bool   // remove what kube-proxy left once the rules are active
	AnnounceNFTables    bool   // announce nftables mode also where no table of kube-proxy was (12.62)
	NoTableOwner        bool   // let other programs change the tables
	// StartJitter is the longest random wait before the first list of Services if
	// rules of an earlier run are in the kernel.
	StartJitter time.Duration
	// ManageSysctl turns on forwarding where endpoints are on other machines.
	ManageSysctl      bool
	AnswerPing        bool     // answer echo requests to addresses of Services
	LoadBalancerCIDRs []string // ranges of external addresses in which nothing else is served
	MasqueradeFrom    []string // addresses of this machine, or primary
	AllowedHosts      []string // names by which clients may call the metrics server
	Observe           string   // level of the connections that are counted and logged
	NodeCondition     bool     // keep a condition of the Node up to date
	ObserveGroup      uint32   // of NFLOG
	LogConnections    string   // which of them have a line in the log
	FastPath          string   // which established connections go past the rules
	DrainFile         string   // with what commands change on this machine; empty: none
	ChangesFile       string   // in which version 0.2 kept changed servers; empty: none
	// ControlSocket is where commands change servers; empty: in the runtime directory, if
	// there is one; [NoControlSocket]: nowhere.
	ControlSocket string
	// HealthDirectory has a file for each Balance; empty: none.
	HealthDirectory string
	OnChange        string // program that runs when a Balance gains or loses its last usable server; empty: none
	// AnnounceInterval is the time between announcements of an address.
	AnnounceInterval time.Duration
	// DNSServers are asked for names of servers, each an address with or without a port; none:
	// those of /etc/resolv.conf.
	DNSServers []string
	DNSTimeout time.Duration // of a question to one server
	// DNSMinTTL and DNSMaxTTL bound the time until a name is looked up again.
	DNSMinTTL, DNSMaxTTL time.Duration
}

const (
	// DefaultDrainFile is where drained endpoints and changed servers are kept.
	DefaultDrainFile = "/var/lib/nftproxy/drain.yaml"
	// DefaultChangesFile is where version 0.2 kept changed servers.
	DefaultChangesFile = "/var/lib/nftproxy/changes.yaml"
	// DefaultControlSocket is in the runtime directory of the systemd unit.
	DefaultControlSocket = "/run/nftproxy/control.sock"
	// NoControlSocket stands for no control socket.
	NoControlSocket = "none"
)

// Remark is a warning about a setting without effect, or with an unexpected one.
type Remark struct {
	Message string
	Args    []any // for slog
}

// Report logs the remarks.
func (c *Config) Report(log *slog.Logger) {
	for _, r := range c.Remarks {
		log.Warn(r.Message, r.Args...)
	}
}

func (c *Config) addRemark(message string, args ...any) {
	c.Remarks = append(c.Remarks, Remark{message, args})
}

// NamesCluster reports whether an API server is configured.
func (c *Config) NamesCluster() bool {
	return c.Kube.ClientConnection.Kubeconfig != "" || c.Master != ""
}

// HealthAddress returns where the health check server listens, as host:port; empty: nowhere (12.9).
func (c *Config) HealthAddress() string { return enabledAddress(c.Kube.HealthzBindAddress) }

// MetricsAddress returns where the metrics server listens, as host:port; empty: nowhere (12.9).
func (c *Config) MetricsAddress() string { return enabledAddress(c.Kube.MetricsBindAddress) }

// enabledAddress returns an address in the form that Go reads, unless its port is 0, which means no server.
func enabledAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	a, ok := parseHost(host)
	if err != nil || !ok || port == "0" {
		return ""
	}
	return net.JoinHostPort(a.String(), port)
}

// SyncPeriod is the longest wait before a failed sync is retried (13.10).
func (c *Config) SyncPeriod() time.Duration { return c.Kube.NFTables.SyncPeriod.Duration }

// MinSyncPeriod is the minimum time between two syncs (13.5).
func (c *Config) MinSyncPeriod() time.Duration { return c.Kube.NFTables.MinSyncPeriod.Duration }

// Feature gates of kube-proxy that have an effect.
const (
	GateStatusz     = "ComponentStatusz"
	GateFlagz       = "ComponentFlagz"
	gateExternalIPs = "AllowServiceExternalIPs"             // (1.17)
	gateLocalhost   = "KubeProxyNFTablesLocalhostNodePorts" // (6.14)
)

// Feature reports whether a feature gate of kube-proxy is on; byDefault is its default.
func (c *Config) Feature(name string, byDefault bool) bool {
	if on, given := c.Kube.FeatureGates[name]; given {
		return on
	}
	return byDefault
}

// Configz returns the body of /configz (11.3).
func (c *Config) Configz() ([]byte, error) {
	return json.Marshal(map[string]any{v1alpha1.GroupName: &c.Kube})
}

// WriteFile writes the settings of kube-proxy as a configuration file (12.58).
func (c *Config) WriteFile(path string) error {
	text, err := yaml.Marshal(&c.Kube)
	if err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// WithoutCluster adapts the defaults to a process that reads files, on a machine that is not a node of a cluster.
// Without a file or flag about them, the settings of connection tracking and the OOM score stay as they are, and
// health checks are not answered.
func (f *Flags) WithoutCluster(c *Config) {
	if c.File != nil {
		return
	}
	if !f.Given("healthz-bind-address") && !f.Given("healthz-port") {
		c.Kube.HealthzBindAddress = ""
	}
	if !f.Given("oom-score-adj") {
		c.Kube.OOMScoreAdj = nil
	}
	k := &c.Kube.Conntrack
	if !f.Given("conntrack-max-per-core") && !f.Given("conntrack-min") {
		k.MaxPerCore, k.Min = ptr.To[int32](0), ptr.To[int32](0)
	}
	// The others are zero by default.
	if !f.Given("conntrack-tcp-timeout-established") {
		k.TCPEstablishedTimeout = &metav1.Duration{}
	}
	if !f.Given("conntrack-tcp-timeout-close-wait") {
		k.TCPCloseWaitTimeout = &metav1.Duration{}
	}
}

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
