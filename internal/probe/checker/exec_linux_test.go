package checker_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestExec: 3.32, exit codes, output and what a program finds in its environment.
func TestExec(t *testing.T) {
	ns := machine(t)
	to := target(netip.MustParseAddrPort("10.0.0.3:8443"))
	to6 := target(netip.MustParseAddrPort("[fd00::3]:8443"))
	t.Setenv("SECRET", "of the daemon")
	notExecutable := filepath.Join(t.TempDir(), "check")
	if err := os.WriteFile(notExecutable, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{exec: /bin/true}`:  "",
		`{exec: /bin/false}`: "/bin/false: exit code 1",
		`{exec: [/bin/sh, -c, "echo; echo disk full; echo more; exit 2"]}`:        "/bin/sh: exit code 2: disk full",
		`{exec: [/bin/sh, -c, "echo broken >&2; exit 3"]}`:                        "/bin/sh: exit code 3: broken",
		`{exec: [/bin/sh, -c, "printf '\\033[31m'; exit 1"]}`:                     "/bin/sh: exit code 1: \\x1b[31m",
		`{exec: [/bin/sh, -c, "kill -TERM $$"]}`:                                  "/bin/sh: signal: terminated",
		`{exec: [/bin/sh, -c, "head -c 3000000 /dev/zero | tr '\\0' x; exit 4"]}`: "/bin/sh: exit code 4: " + strings.Repeat("x", 177) + "...",
		`{exec: /none}`:                 "start /none: no such file or directory",
		`{exec: ` + notExecutable + `}`: "start " + notExecutable + ": permission denied",
		`{exec: [/bin/sh, -c, "pwd; env | sort | tr '\\n' ' ' | cut -c -300; exit 1"]}`:                    "/bin/sh: exit code 1: /",
		`{exec: [/bin/sh, -c, "echo $NFTPROXY_ADDRESS $NFTPROXY_PORT $NFTPROXY_SERVICE $SECRET; exit 1"]}`: "/bin/sh: exit code 1: 10.0.0.3 8443 shop/web",
		`{exec: [/bin/sh, -c, "cat; exit $(cat /proc/self/oom_score_adj)"]}`:                               "",
		`{exec: [/bin/sleep, "60"], timeout: 100ms}`:                                                       "/bin/sleep: no answer within 100ms",
		`{exec: [/bin/sh, -c, "trap : TERM; while :; do :; done"], timeout: 100ms}`:                        "/bin/sh: no answer within 100ms",
	} {
		compare(t, text, check(t, ns, text, to), want)
	}
	compare(t, "IPv6", check(t, ns, `{exec: [/bin/sh, -c, "echo $NFTPROXY_ADDRESS; exit 1"]}`, to6), "/bin/sh: exit code 1: fd00::3")
}

// TestExecLeavesNothing: 3.33, children of a program end with it, or with the check.
func TestExecLeavesNothing(t *testing.T) {
	ns := machine(t)
	to := target(netip.MustParseAddrPort("10.0.0.3:8443"))
	for _, c := range []struct{ script, timeout, want string }{
		{"sleep 600 & echo $! > %s", "", ""},
		{"sleep 600 & echo $! > %s; wait", ", timeout: 1s", "/bin/sh: no answer within 1s"},
		{"sleep 600 >/dev/null 2>&1 & echo $! > %s; exit 1", "", "/bin/sh: exit code 1"},
	} {
		file := filepath.Join(t.TempDir(), "pid")
		text := fmt.Sprintf(`{exec: [/bin/sh, -c, %q]%s}`, fmt.Sprintf(c.script, file), c.timeout)
		compare(t, c.script, check(t, ns, text, to), c.want)
		pid := 0
		written, err := os.ReadFile(file)
		if err == nil {
			_, err = fmt.Sscan(string(written), &pid)
		}
		if err != nil || pid <= 1 {
			t.Fatalf("%s: process %d, %v", c.script, pid, err)
		}
		netlab.Eventually(t, 10*time.Second, func() error {
			state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && !strings.Contains(string(state), ") Z ") && syscall.Kill(pid, 0) == nil {
				return fmt.Errorf("%s: child %d is still there", c.script, pid)
			}
			return nil
		})
	}
	// A child that has left the process group holds the output.
	file := filepath.Join(t.TempDir(), "pid")
	compare(t, "session", check(t, ns, fmt.Sprintf(`{exec: [/bin/sh, -c, "setsid sh -c 'echo $$ > %s; exec sleep 600' & while ! test -s %s; do sleep 0.01; done"]}`, file, file), to), "")
	var pid int
	if written, err := os.ReadFile(file); err == nil {
		if _, err := fmt.Sscan(string(written), &pid); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
