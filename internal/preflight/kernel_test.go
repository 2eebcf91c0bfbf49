package preflight

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// helper makes the test binary a process that checks the kernel and says what
// it found.
const helper = "NFTPROXY_TEST_PREFLIGHT"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(netlab.Run(m.Run))
	}
	problems, err := Check(model.Families[:], Use{})
	if err != nil {
		os.Stdout.WriteString(err.Error())
	}
	for _, p := range problems {
		os.Stdout.WriteString(p.String() + "\n")
	}
}

// TestKernel finds nothing missing in the kernel that runs all other tests,
// and leaves it as it was: the generation of the ruleset is the same (12.49).
func TestKernel(t *testing.T) {
	ns := netlab.TestNamespace(t)
	before, err := ns.Generation()
	if err != nil {
		t.Fatal(err)
	}
	for _, families := range [][]model.Family{{model.IPv4}, model.Families[:]} {
		var problems []Problem
		if err := ns.Do(func() (err error) { problems, err = Check(families, Use{true, true}); return err }); err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Error(p)
		}
	}
	if after, err := ns.Generation(); err != nil || after != before {
		t.Errorf("generation is %d and was %d, %v", after, before, err)
	}
	out, err := output(ns, exec.Command("nft", "list", "ruleset"))
	if err != nil || out != "" {
		t.Errorf("rules are there: %q, %v", out, err)
	}
}

func output(ns *netlab.Namespace, cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := ns.Run(cmd)
	return out.String(), err
}

// Without CAP_NET_ADMIN the one problem is that (14.7).
func TestWithoutCapability(t *testing.T) {
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), helper+"=1")
	// A user namespace of its own has no capability over the network namespace.
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: unix.SIGKILL}
	out, err := output(netlab.TestNamespace(t), child)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, "permission") || !strings.Contains(out, "CAP_NET_ADMIN") {
		t.Errorf("it says %q", out)
	}
}
