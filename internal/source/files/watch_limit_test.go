package files

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// oneInstance is set in the process that has one inotify instance.
const oneInstance = "NFTPROXY_TEST_ONE_INSTANCE"

// TestWatchOneInstance: where the kernel grants no second inotify instance, the
// watcher continues with one, and no change is lost (12.50).
func TestWatchOneInstance(t *testing.T) {
	if os.Getenv(oneInstance) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWatchOneInstance$", "-test.v")
		cmd.Env = append(os.Environ(), oneInstance+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	check(t, os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("1"), 0))
	t.Chdir(t.TempDir())
	writes("a.yaml")(t)
	w, err := NewWatcher("a.yaml")
	check(t, err)
	calls := make(chan error)
	go func() {
		err := w.Run(t.Context(), func() { calls <- nil })
		calls <- fmt.Errorf("the watcher has ended: %w", err)
	}()
	for _, edit := range []func(*testing.T){
		func(t *testing.T) { check(t, os.Chmod("a.yaml", 0o644)) },
		both(writes("a.yaml.tmp"), renames("a.yaml.tmp", "a.yaml")),
		writes("a.yaml"),
	} {
		edit(t)
		check(t, await.Receive(t, calls, "change"))
	}
}
