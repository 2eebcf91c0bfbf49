package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const configHeader = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// configured is a [Program] that only reads the configuration.
type configured struct {
	Program
	settings *config.Flags
}

func (c configured) Usable() error { _, err := c.settings.Load(); return err }

// TestConfigWatch distinguishes changes of the content of the configuration file
// from others (12.50, P85).
func TestConfigWatch(t *testing.T) {
	check := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const other = configHeader + "bindAddress: 10.0.0.1\n"
	// A file that is truncated and written is empty for longer than the watch waits, if the
	// machine is busy.
	overwrite := func(t *testing.T, path, content string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		check(t, err)
		_, err = f.WriteString(content)
		check(t, err)
		check(t, f.Close())
	}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir, path string)
		ends   bool
		says   string // in the log, if it goes on
	}{
		{"12.50 appended to", func(t *testing.T, _, path string) {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			check(t, err)
			_, err = f.WriteString("# more\n")
			check(t, err)
			check(t, f.Close())
		}, true, ""},
		{"12.50 replaced by renaming another file over it", func(t *testing.T, _, path string) {
			check(t, os.WriteFile(path+".new", []byte(other), 0o600))
			check(t, os.Rename(path+".new", path))
		}, true, ""},
		{"12.50 link switched, as in a mounted ConfigMap", func(t *testing.T, dir, _ string) {
			check(t, os.Mkdir(filepath.Join(dir, "two"), 0o700))
			check(t, os.WriteFile(filepath.Join(dir, "two", "config.conf"), []byte(other), 0o600))
			check(t, os.Symlink("two", filepath.Join(dir, "data.new")))
			check(t, os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")))
		}, true, ""},
		{"12.50 link switched to a file with a typo, later to one without", func(t *testing.T, dir, _ string) {
			check(t, os.Mkdir(filepath.Join(dir, "two"), 0o700))
			check(t, os.WriteFile(filepath.Join(dir, "two", "config.conf"), []byte(configHeader+"clusterCIDR: [\n"), 0o600))
			check(t, os.Symlink("two", filepath.Join(dir, "data.new")))
			check(t, os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")))
		}, false, "did not find expected node content"},
		{"12.50 a value that is not valid", func(t *testing.T, _, path string) {
			overwrite(t, path, configHeader+"clusterCIDR: 10.0.0.0/33\n")
		}, false, "10.0.0.0/33"},
		{"12.50 chmod", func(t *testing.T, _, path string) { check(t, os.Chmod(path, 0o644)) }, false, ""},
		{"12.50 written with the same content", func(t *testing.T, _, path string) { overwrite(t, path, configHeader) }, false, ""},
		{"12.50 removed", func(t *testing.T, _, path string) { check(t, os.Remove(path)) }, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			check(t, os.Mkdir(filepath.Join(dir, "one"), 0o700))
			path := filepath.Join(dir, "one", "config.conf")
			check(t, os.WriteFile(path, []byte(configHeader), 0o600))
			check(t, os.Symlink("one", filepath.Join(dir, "data")))
			set := pflag.NewFlagSet("test", pflag.ContinueOnError)
			settings := config.NewFlags(set)
			settings.AddRules()
			check(t, set.Parse([]string{"--config", filepath.Join(dir, "data", "config.conf")}))
			cfg, err := settings.Load()
			check(t, err)
			var log netlab.LogBuffer
			watch, err := watchConfig(cfg.File, configured{settings: settings}, slog.New(slog.NewTextHandler(&log, nil)))
			check(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- watch.run(ctx) }()
			c.change(t, dir, path)
			switch {
			case c.says != "":
				await.Until(t, func() error {
					if !strings.Contains(log.String(), c.says) {
						return fmt.Errorf("the log does not say %q", c.says)
					}
					return nil
				})
				check(t, os.WriteFile(path+".new", []byte(other), 0o600))
				check(t, os.Symlink(filepath.Dir(path), filepath.Join(dir, "data.new")))
				check(t, os.Rename(path+".new", path))
				check(t, os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")))
			case !c.ends:
				await.Span(500 * time.Millisecond) // longer than a burst of events is waited for
				cancel()
			}
			if lines := strings.Count(log.String(), "\n"); lines != min(len(c.says), 1) {
				t.Errorf("%d lines in the log: %s", lines, log.String())
			}
			if err := await.Receive(t, ended, "end of the watch"); (c.ends || c.says != "") != (err != nil && strings.Contains(err.Error(), "has changed: ending")) {
				t.Errorf("ends with %v, want an end: %v", err, c.ends)
			}
		})
	}
}
