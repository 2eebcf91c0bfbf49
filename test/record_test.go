package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// resumed is what the daemon logs when it need not read the rules.
const resumed = "the kernel still holds these rules"

// TestRestartWithoutReading: 13.30. A daemon that ends leaves a record of the rules, with
// which the next one starts; it uses the record only if nothing else can be in the kernel,
// also where other programs can change the rules.
func TestRestartWithoutReading(t *testing.T) {
	for mode, flags := range map[string][]string{"owned": nil, "not owned": {"--no-table-owner"}} {
		t.Run(mode, func(t *testing.T) { restartsWithoutReading(t, flags) })
	}
}

func restartsWithoutReading(t *testing.T, flags []string) {
	edit := func(f func(text []byte) []byte) func(*testing.T, *cluster, string) {
		return func(t *testing.T, _ *cluster, record string) {
			t.Helper()
			text, err := os.ReadFile(record)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(record, f(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	older := func(text []byte) []byte { // than the start of the machine
		return bytes.Replace(text, []byte(`"Made":`), []byte(`"Made":-9999`), 1)
	}
	for name, c := range map[string]struct {
		between func(t *testing.T, c *cluster, record string) // the two daemons
		resumes bool
	}{
		"nothing happened": {func(*testing.T, *cluster, string) {}, true},
		"a table of another": {func(_ *testing.T, c *cluster, _ string) {
			c.nft("add", "table", "ip", "other")
		}, false},
		"there and back": {func(_ *testing.T, c *cluster, _ string) {
			c.nft("add", "table", "ip", "other")
			c.nft("delete", "table", "ip", "other")
		}, false},
		"our rules were deleted": {func(_ *testing.T, c *cluster, _ string) {
			c.nft("delete", "table", "ip", "nftproxy")
		}, false},
		"other objects": {func(_ *testing.T, c *cluster, _ string) {
			c.write(service{Name: "web", N: 1, Pods: c.Pods[1:2]}, service{Name: "more", N: 2, Pods: c.Pods[1:2]})
		}, false},
		"other rules of the same objects": {edit(func(text []byte) []byte {
			return bytes.Replace(text, []byte(`"Rules":"`), []byte(`"Rules":"AAAA`), 1)
		}), true},
		"another program": {edit(func(text []byte) []byte {
			return bytes.Replace(text, []byte(`"Program":"`), []byte(`"Program":"AAAA`), 1)
		}), true}, // which makes the same rules
		"another program with other rules": {edit(func(text []byte) []byte {
			text = bytes.Replace(text, []byte(`"Program":"`), []byte(`"Program":"AAAA`), 1)
			return bytes.Replace(text, []byte(`"Rules":"`), []byte(`"Rules":"AAAA`), 1)
		}), false},
		"half a record": {edit(func(text []byte) []byte { return text[:len(text)/2] }), false},
		"another boot": {edit(func(text []byte) []byte {
			return bytes.Replace(text, []byte(`"Boot":"`), []byte(`"Boot":"0`), 1)
		}), false},
		"another namespace": {edit(func(text []byte) []byte {
			return bytes.Replace(text, []byte(`"Namespace":`), []byte(`"Namespace":1`), 1)
		}), false},
		"another time namespace": {edit(func(text []byte) []byte {
			return bytes.Replace(text, []byte(`"Clock":"`), []byte(`"Clock":"0`), 1)
		}), false},
		"an old record": {edit(older), false},
		"a record of the future": {edit(func(text []byte) []byte {
			return bytes.Replace(text, []byte(`"Made":`), []byte(`"Made":9999`), 1)
		}), false},
		"as many transactions as there are generations": {func(t *testing.T, c *cluster, record string) {
			c.nft("flush", "map", "ip", "nftproxy", "endpoints")
			edit(func(text []byte) []byte {
				now := fmt.Appendf(nil, `"Generation":%d`, c.Node.TestGeneration(t))
				return older(regexp.MustCompile(`"Generation":\d+`).ReplaceAll(text, now))
			})(t, c, record)
		}, false},
		"a pipe": {func(t *testing.T, _ *cluster, record string) {
			if err := errors.Join(os.Remove(record), syscall.Mkfifo(record, 0o600)); err != nil {
				t.Error(err)
			}
		}, false},
		"no record": {func(t *testing.T, _ *cluster, record string) {
			if err := os.Remove(record); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, 3)
			cl.flags = append(cl.flags[:len(cl.flags):len(cl.flags)], flags...)
			record := filepath.Join(t.TempDir(), "rules.json")
			keep := func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+filepath.Dir(record)) }
			web := service{Name: "web", N: 1, Pods: cl.Pods[:1]}
			cl.write(web)
			first := cl.start(keep)
			cl.answersFrom(web, "pod-0")
			web.Pods = cl.Pods[1:2]
			cl.write(web)
			cl.answersFrom(web, "pod-1")
			cl.nft("add", "table", "ip", "neighbour") // is seen, and not ours
			first.stop(t)
			c.between(t, cl, record)

			next := cl.start(keep)
			if c.resumes {
				eventually(t, func() error {
					if !strings.Contains(next.log.String(), resumed) {
						return fmt.Errorf("the daemon does not use the record")
					}
					return nil
				})
				forEachFlow(t, func(t *testing.T, network string, family model.Family) {
					if got := ask(t, cl.Client, network, web.clusterIP(family)).Name; got != "pod-1" {
						t.Errorf("got %s, want pod-1", got)
					}
				})
			}
			cl.answersFrom(web, "pod-1")
			web.Pods = cl.Pods[2:]
			cl.write(web)
			cl.answersFrom(web, "pod-2")
			if uses := strings.Contains(next.log.String(), resumed); uses != c.resumes {
				t.Errorf("uses the record: %t, want %t", uses, c.resumes)
			}
			if _, err := os.Stat(record); err == nil {
				t.Error("the record is still there while a daemon runs")
			}
			next.stop(t)
		})
	}
}

// TestNoRecordAfterKill: 13.30. A daemon that is killed leaves no record.
func TestNoRecordAfterKill(t *testing.T) {
	c := newCluster(t, 1)
	folder := t.TempDir()
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.write(web)
	d := c.start(func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+folder) })
	c.answersFrom(web, "pod-0")
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait() // reports the signal
	left, err := os.ReadDir(folder)
	left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return e.Type() == os.ModeSocket }) // the next process replaces it
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
