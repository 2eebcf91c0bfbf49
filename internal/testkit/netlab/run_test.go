package netlab

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestRunWithoutRoot runs a test in a process without capabilities: it passes
// in a user namespace, and is skipped where there may be none.
func TestRunWithoutRoot(t *testing.T) {
	for name, c := range map[string]struct {
		uid          int
		before, want string
	}{
		"allowed": {1000, "exec", "--- PASS: TestProcessEndsWithNamespace"},
		"forbidden": {0, "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --bounding-set=-all",
			"kernel.unprivileged_userns_clone"},
	} {
		t.Run(name, func(t *testing.T) {
			const script = ` "$0" -test.v -test.run='^TestProcessEndsWithNamespace$'`
			cmd := exec.Command("sh", "-c", c.before+script, os.Args[0])
			cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, inUserNamespace) })
			// The limit is that of a user namespace.
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: c.uid, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, want %q in\n%s", err, c.want, out)
			}
		})
	}
}
