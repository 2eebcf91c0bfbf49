package host

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"golang.org/x/sys/unix"
)

const disableIPv6 = "proc/sys/net/ipv6/conf/all/disable_ipv6"

// 12.48, 15.7: IPv4 always, IPv6 if the kernel has it and it is not disabled.
func TestFamilies(t *testing.T) {
	both := []model.Family{model.IPv4, model.IPv6}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []model.Family
	}{
		{"12.48 on", map[string]string{disableIPv6: "0"}, both},
		{"12.48 off", map[string]string{disableIPv6: "1"}, both[:1]},
		{"15.7 not in the kernel", nil, both[:1]},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := tree(t, c.files).Families(); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v, %v, want %v", got, err, c.want)
			}
		})
	}
	if got, err := tree(t, map[string]string{disableIPv6: ""}).Families(); err == nil {
		t.Errorf("%v where it cannot be known", got)
	}
}

// TestKernelFamilies turns IPv6 off in a network namespace.
func TestKernelFamilies(t *testing.T) {
	ns := netlab.TestNamespace(t)
	for value, want := range map[string]int{"0": 2, "1": 1} {
		var got []model.Family
		err := ns.Do(func() (err error) {
			if err := System("").write(disableIPv6, value); err != nil {
				return err
			}
			got, err = System("").Families()
			return err
		})
		if err != nil || len(got) != want {
			t.Errorf("disable_ipv6 is %s: %v, %v", value, got, err)
		}
	}
}

// helper makes the test binary a process that sets its own OOM score.
const helper = "NFTPROXY_TEST_OOM_SCORE"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(netlab.Run(m.Run))
	}
	log, logged := logger()
	for _, score := range []int{999, 999, -998} {
		if err := System("").SetOOMScore(score, log); err != nil {
			log.Error("failed", "error", err)
		}
	}
	os.Stdout.WriteString(logged.String())
}

// 12.49: raising the OOM score needs no capability, lowering it below what it
// was does.
func TestOOMScore(t *testing.T) {
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), helper+"=1")
	// No user namespace but the first has the capability.
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: unix.SIGKILL}
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "to=999") || !strings.Contains(lines[1], "CAP_SYS_RESOURCE") {
		t.Errorf("log is %q", lines)
	}
}
