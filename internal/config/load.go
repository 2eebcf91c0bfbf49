package config

import (
	"cmp"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
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
	problems = append(problems, c.validate()...)
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
		if *path, err = filepath.Abs(*path); err != nil {
			problems = append(problems, ownProblem(flag, err))
		}
	}
	return problems
}

// useFlags reads the settings from the flags. Unlike in a file, zero means zero
// (12.4).
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

// serverAddress completes an address given by flag with the port of the
// deprecated flag (12.9).
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
