package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/manifest"
)

// Load returns the configuration that the command line asks for, from the file
// that it names or from the flags themselves. The error lists all problems.
func (f *Flags) Load() (*Config, error) {
	c := &Config{Own: f.own, Master: f.master, Context: f.context}
	var problems []error
	if f.ConfigFile == "" {
		problems = f.useFlags(c)
	} else if err := f.useFile(c); err != nil {
		return nil, err
	}
	c.remarkIgnored(f)
	problems = append(problems, c.makeAbsolute()...)
	problems = slices.Concat(problems, c.readNode(), c.check())
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return c, nil
}

// makeAbsolute makes the paths of files absolute: commands look for them from other directories.
func (c *Config) makeAbsolute() (problems []error) {
	paths := map[string]*string{DrainFile: &c.Own.DrainFile, ChangesFile: &c.Own.ChangesFile, "health-directory": &c.Own.HealthDirectory, "on-change": &c.Own.OnChange}
	if c.Own.ControlSocket != NoControlSocket {
		paths["control-socket"] = &c.Own.ControlSocket
	}
	for flag, path := range paths {
		if *path == "" {
			continue
		}
		var err error
		*path, err = filepath.Abs(*path)
		problems = append(problems, ownProblem(flag, err))
	}
	return problems
}

// useFlags reads the settings from the flags. Unlike in a file, zero means zero (12.4).
func (f *Flags) useFlags(c *Config) []error {
	c.Kube = *f.kube.DeepCopy()
	k := &c.Kube
	fillInTexts(k)
	k.HealthzBindAddress = serverAddress(k.HealthzBindAddress, f.healthzPort)
	k.MetricsBindAddress = serverAddress(k.MetricsBindAddress, f.metricsPort)
	if f.Given("cluster-cidr") && k.ClusterCIDR == "" && k.DetectLocalMode == "ClusterCIDR" {
		return []error{c.fieldProblem("clusterCIDR", "an empty text is not a range: omit the flag if the range is unknown")}
	}
	return nil
}

// serverAddress completes an address given by flag with the port of the deprecated flag (12.9).
func serverAddress(address string, port int32) string {
	if address == "" || port == 0 {
		return net.JoinHostPort("0.0.0.0", "0")
	}
	return withPort(address, int(port))
}

func (f *Flags) useFile(c *Config) error {
	k, file, remarks, err := readFile(f.ConfigFile)
	if err != nil {
		return err
	}
	fillIn(k)
	c.Kube, c.File, c.Remarks = *k, file, remarks
	c.Kube.HostnameOverride = cmp.Or(f.kube.HostnameOverride, c.Kube.HostnameOverride)
	f.overrideLogging(c)
	if ignored := f.inFile(); len(ignored) > 0 {
		c.addRemark("flags without effect, because --config is given: set the fields in the file", "flags", strings.Join(ignored, " "), "file", f.ConfigFile)
	}
	return nil
}

// overrideLogging gives flags precedence over the file.
func (f *Flags) overrideLogging(c *Config) {
	modules := c.Kube.Logging.VModule
	from, to := leafFields(f.kube), leafFields(&c.Kube)
	for name, field := range fields() {
		if strings.HasPrefix(field, "logging.") && f.Given(name) {
			to[field].Set(from[field])
		}
	}
	if f.Given("vmodule") {
		c.Kube.Logging.VModule = slices.Concat(c.Kube.Logging.VModule, modules)
	}
}

// inFile returns the given flags that the file overrides (12.2).
func (f *Flags) inFile() []string {
	var out []string
	f.set.Visit(func(g *pflag.Flag) {
		field, has := fields()[g.Name]
		if has && field != "hostnameOverride" && !strings.HasPrefix(field, "logging.") {
			out = append(out, "--"+g.Name)
		}
	})
	return out
}

// File is a configuration file as it was read.
type File struct {
	Path    string
	content []byte
}

// Changed reports whether the content of the file differs now. A file that cannot
// be read has not changed: it may be about to be replaced.
func (f *File) Changed() bool {
	now, err := atomicfile.Read(f.Path)
	return err == nil && !bytes.Equal(now, f.content)
}

// readFile reads a KubeProxyConfiguration in YAML or JSON (12.1). Fields that are not given keep their zero values.
// Unknown and repeated fields are remarks (12.3); everything else that is wrong is an error, which names file, line
// and field.
func readFile(path string) (*v1alpha1.KubeProxyConfiguration, *File, []Remark, error) {
	content, err := atomicfile.Read(path)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("--config: %w", err)
	}
	object, more, err := parse(path, content)
	if err != nil {
		return nil, nil, nil, err
	}
	var remarks []Remark
	if more {
		remarks = append(remarks, Remark{"only the first document of the configuration file counts", []any{"file", path}})
	}
	k := &v1alpha1.KubeProxyConfiguration{}
	var problems []error
	for _, p := range object.Decode(k) {
		f := p.Err.(*manifest.FieldError)
		at := []any{"file", path, "line", p.Line, "field", f.Field}
		switch {
		case strings.HasPrefix(f.Problem, manifest.UnknownField):
			remarks = append(remarks, Remark{"unknown field in the configuration file has no effect: check its spelling", at})
		case f.Problem == manifest.GivenTwice:
			remarks = append(remarks, Remark{"field is given twice in the configuration file: the last one counts", at})
		default:
			problems = append(problems, p)
		}
	}
	if err := errors.Join(append(problems, checkKind(object)...)...); err != nil {
		return nil, nil, nil, err
	}
	return k, &File{path, content}, remarks, nil
}

func parse(path string, content []byte) (o *manifest.Object, more bool, err error) {
	docs, err := manifest.Split(path, content)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	if len(docs) > 0 {
		docs[0].Convert, docs[0].Document = yaml.YAMLToJSON, 0 // as kube-proxy does
		switch o, problem := docs[0].Parse(); {
		case problem != nil:
			return nil, false, problem
		case o != nil:
			return o, len(docs) > 1, nil
		}
	}
	return nil, false, fmt.Errorf("%s: the file is empty: it must hold a %s", path, kind)
}

// checkKind refuses files for other programs and other versions.
func checkKind(o *manifest.Object) (problems []error) {
	name, version := o.Type()
	for _, c := range []struct{ field, got, want string }{
		{"apiVersion", version, v1alpha1.SchemeGroupVersion.String()},
		{"kind", name, kind},
	} {
		if c.got != c.want {
			problems = append(problems, o.Error(&manifest.FieldError{Field: c.field, Value: manifest.Quote(c.got), Problem: "is not known: write " + c.want}))
		}
	}
	return problems
}

const (
	// defaultMinSyncPeriod leaves time for readers of the tables: nft starts again whenever the ruleset has
	// changed, and with 20 changes a second and 50 ms between syncs it did not finish (make bench-period and nft
	// list ruleset with 3,000 Services, see docs/performance.md). A single change never waits.
	defaultMinSyncPeriod = 100 * time.Millisecond
	kind                 = "KubeProxyConfiguration"
	healthzPort          = 10256
	metricsPort          = 10249
)

func newDefaults() *v1alpha1.KubeProxyConfiguration {
	k := &v1alpha1.KubeProxyConfiguration{}
	fillIn(k)
	return k
}

// fillIn gives unset fields their defaults. Zero and empty mean unset in a file
// (12.4). The values are kube-proxy's, except minSyncPeriod.
func fillIn(k *v1alpha1.KubeProxyConfiguration) {
	k.Kind, k.APIVersion = kind, v1alpha1.SchemeGroupVersion.String()
	fillInTexts(k)
	fillInServers(k)

	c := &k.ClientConnection
	c.ContentType = cmp.Or(c.ContentType, runtime.ContentTypeProtobuf)
	c.QPS = cmp.Or(c.QPS, 5)
	c.Burst = cmp.Or(c.Burst, 10)

	n := &k.NFTables
	n.SyncPeriod.Duration = cmp.Or(n.SyncPeriod.Duration, 30*time.Second)
	n.MinSyncPeriod.Duration = cmp.Or(n.MinSyncPeriod.Duration, max(0, min(defaultMinSyncPeriod, n.SyncPeriod.Duration)))
	n.MasqueradeBit = cmp.Or(n.MasqueradeBit, ptr.To[int32](14))
	k.IPTables.MasqueradeBit = cmp.Or(k.IPTables.MasqueradeBit, ptr.To[int32](14))
	k.IPTables.LocalhostNodePorts = cmp.Or(k.IPTables.LocalhostNodePorts, ptr.To(true))
	k.ConfigSyncPeriod.Duration = cmp.Or(k.ConfigSyncPeriod.Duration, 15*time.Minute)
	k.OOMScoreAdj = cmp.Or(k.OOMScoreAdj, ptr.To[int32](-999))

	t := &k.Conntrack
	t.MaxPerCore = cmp.Or(t.MaxPerCore, ptr.To[int32](32*1024))
	t.Min = cmp.Or(t.Min, ptr.To[int32](128*1024))
	t.TCPEstablishedTimeout = cmp.Or(t.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	t.TCPCloseWaitTimeout = cmp.Or(t.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
	logsapi.SetRecommendedLoggingConfiguration(&k.Logging)
}

func fillInTexts(k *v1alpha1.KubeProxyConfiguration) {
	k.Mode = cmp.Or(k.Mode, modeNFTables)
	k.BindAddress = cmp.Or(k.BindAddress, "0.0.0.0")
	k.DetectLocalMode = cmp.Or(k.DetectLocalMode, "ClusterCIDR")
	if len(k.NodePortAddresses) == 0 {
		k.NodePortAddresses = []string{primary}
	}
}

// fillInServers completes the addresses of the servers: their default family is the one of the bind address.
func fillInServers(k *v1alpha1.KubeProxyConfiguration) {
	everywhere, loopback := "0.0.0.0", "127.0.0.1"
	if a, err := netip.ParseAddr(k.BindAddress); err == nil && a.Is6() {
		everywhere, loopback = "::", "::1"
	}
	k.HealthzBindAddress = withPort(cmp.Or(k.HealthzBindAddress, everywhere), healthzPort)
	k.MetricsBindAddress = withPort(cmp.Or(k.MetricsBindAddress, loopback), metricsPort)
}

func withPort(address string, port int) string {
	if _, ok := parseHost(address); !ok {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(port))
}
