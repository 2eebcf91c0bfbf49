package neighbours

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// room is where programs run that keep state in files and leave processes behind:
// mount and PID namespaces, with an own /run and copies of some directories. All
// that runs in it ends with the test.
type room struct {
	t      *testing.T
	on     *netlab.Host
	keeper *testbed.Process
}

// keep makes the room: the first process of the PID namespace. Directories are
// copied, so that programs change their own configuration and state. The shell
// waits for processes that have lost their parent.
const keep = `set -e
mount --make-rprivate /
mount -t proc proc /proc
room=$(mktemp -d)
mount -t tmpfs tmpfs "$room"
for dir; do
	mkdir -p "$room$dir" "$dir"
	cp -a "$dir/." "$room$dir"
	mount --bind "$room$dir" "$dir"
done
umount -l "$room"
rmdir "$room"
mount -t tmpfs tmpfs /run
touch /run/ready
while sleep 3600; do :; done`

// newRoom makes a room on a host, with copies of directories.
func newRoom(t *testing.T, on *netlab.Host, directories ...string) *room {
	t.Helper()
	cmd := exec.Command("unshare", slices.Concat([]string{"--mount", "--pid", "--fork", "--kill-child", "sh", "-c", keep, "keeper"}, directories)...)
	r := &room{t, on, testbed.StartCommand(t, on, "keeper of a room", cmd)}
	netlab.Eventually(t, patience, func() error { return on.Run(r.command("test", "-e", "/run/ready")) })
	return r
}

// command returns a command that is run in the room. The target of nsenter is
// the child of unshare.
func (r *room) command(name string, args ...string) *exec.Cmd {
	const enter = `exec nsenter --target $(cat /proc/$0/task/$0/children) --mount --pid "$@"`
	return exec.Command("sh", slices.Concat([]string{"-c", enter, strconv.Itoa(r.keeper.Cmd.Process.Pid), name}, args)...)
}

// run runs a command in the room, which must succeed, and returns what it prints.
func (r *room) run(name string, args ...string) string {
	r.t.Helper()
	out, err := r.try(name, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// try runs a command in the room and returns what it prints.
func (r *room) try(name string, args ...string) (string, error) {
	return output(r.on, r.command(name, args...))
}

// start starts a program in the room.
func (r *room) start(name string, args ...string) *testbed.Process {
	r.t.Helper()
	return testbed.StartCommand(r.t, r.on, name, r.command(name, args...))
}

// stop sends SIGTERM to a program that wrote its process ID to a file, and waits
// for its end.
func (r *room) stop(p *testbed.Process, pidFile string) {
	r.t.Helper()
	r.run("sh", "-c", `kill "$(cat "$0")"`, pidFile)
	_ = p.Cmd.Wait() // the exit status is not of interest
}

// packaged returns the version of a Debian package, without Debian's part.
func packaged(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("dpkg-query", "--show", "--showformat", "${Version}", name).Output()
	if err != nil {
		t.Fatalf("find the version of %s: %v", name, err)
	}
	version, _, _ := strings.Cut(string(out), "-")
	version, _, _ = strings.Cut(version, "+")
	return version
}

// buildPeer builds the program peer and returns its path, which all users may
// run.
func buildPeer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "peer")
	if _, err := testbed.GoCommand("build", "-o", program, "./peer"); err != nil {
		t.Fatal(err)
	}
	return program
}
