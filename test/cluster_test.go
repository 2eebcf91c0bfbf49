package test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/test/program"
)

const (
	// silence is how long a test waits before it counts an answer as missing.
	// Answers take less than a millisecond in the laboratory.
	silence = 300 * time.Millisecond
	// patience is how long a test waits for what must come, also on an emulated or busy machine.
	patience = program.Patience
)

// cluster is a laboratory with echo servers on its pods, and an input file.
type cluster struct {
	*netlab.Lab
	t     *testing.T
	file  string
	flags []string // of the program, more than those that name the input
}

// clusterCIDR says which addresses are those of pods.
var clusterCIDR = []string{"--cluster-cidr", netlab.ClusterCIDRv4.String() + "," + netlab.ClusterCIDRv6.String()}

// newCluster makes the cluster of a test, which from then on runs in parallel
// to others: they share nothing.
func newCluster(t *testing.T, pods int) *cluster {
	t.Helper()
	t.Parallel()
	lab := netlab.TestLab(t, pods)
	c := &cluster{lab, t, filepath.Join(t.TempDir(), "services.yaml"), clusterCIDR}
	c.echo(lab.Pods...)
	return c
}

// newWideCluster makes a cluster that has pods on other nodes as well.
func newWideCluster(t *testing.T, pods, remote int) *cluster {
	t.Helper()
	c := newCluster(t, pods)
	if err := c.AddRemotePods(remote); err != nil {
		t.Fatal(err)
	}
	c.echo(c.Remote...)
	return c
}

// forEachFlowParallel is for tests that wait rather than count.
func forEachFlowParallel(t *testing.T, f func(t *testing.T, network string, family model.Family)) {
	var wg sync.WaitGroup
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			wg.Go(func() {
				t.Run(fmt.Sprint(network, " ", family), func(t *testing.T) { f(t, network, family) })
			})
		}
	}
	wg.Wait()
}

// in returns the cluster for use in a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	sub := *c
	sub.t = t
	return &sub
}

// echo starts echo servers.
func (c *cluster) echo(hosts ...*netlab.Host) {
	c.t.Helper()
	for _, h := range hosts {
		echo, err := h.Echo(echoPort)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { echo.Close() })
	}
}

// forEachFlow runs a test over the protocols and families. It is not parallel:
// the four share the counters that the endpoints are chosen by.
func forEachFlow(t *testing.T, f func(t *testing.T, network string, family model.Family)) {
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			t.Run(fmt.Sprint(network, " ", family), func(t *testing.T) { f(t, network, family) })
		}
	}
}

// allClients returns clients of each kind: outside, the node, the pods.
func (c *cluster) allClients() []*netlab.Host {
	return slices.Concat([]*netlab.Host{c.Client, c.Node}, c.Pods, c.Remote)
}

// write writes the input file in place.
func (c *cluster) write(services ...service) {
	c.t.Helper()
	if err := os.WriteFile(c.file, []byte(renderInput(c.t, c.Node, services)), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// apply writes the input file and applies it.
func (c *cluster) apply(services ...service) {
	c.t.Helper()
	c.write(services...)
	c.mustRun(0, c.command("apply"))
}

// command returns the program with the arguments that all its commands on the
// input file have.
func (c *cluster) command(name string) *exec.Cmd {
	args := []string{name, "-f", c.file, "--hostname-override", nodeName}
	return exec.Command(binary, append(args, c.flags...)...)
}

// mustRun runs cmd on the node and returns its output, after checking the exit
// status.
func (c *cluster) mustRun(status int, cmd *exec.Cmd) string {
	c.t.Helper()
	stdout, _ := c.mustRunBoth(status, cmd)
	return stdout
}

// mustRunBoth returns what mustRun does and the log.
func (c *cluster) mustRunBoth(status int, cmd *exec.Cmd) (output, log string) {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := c.Node.Run(cmd)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		c.t.Fatalf("%s: %v, want exit status %d\n%s%s", cmd, err, status, &stdout, &stderr)
	}
	return stdout.String(), stderr.String()
}

// nft runs nft on the node.
func (c *cluster) nft(args ...string) string {
	c.t.Helper()
	return c.mustRun(0, exec.Command("nft", args...))
}

// set sets a sysctl of the node.
func (c *cluster) set(name, value string) {
	c.t.Helper()
	path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
	c.mustRun(0, exec.Command("/bin/sh", "-c", "echo "+value+" >"+path))
}

// nftLoad loads a script on the node.
func (c *cluster) nftLoad(script string) {
	c.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	c.mustRun(0, cmd)
}

// endpointOf returns where a host answers.
func endpointOf(h *netlab.Host, f model.Family) netip.AddrPort {
	return netip.AddrPortFrom(h.Address(f), echoPort)
}

// ask dials and must get an answer.
func ask(t *testing.T, from *netlab.Host, network string, to netip.AddrPort) netlab.Answer {
	t.Helper()
	answer, err := from.Ask(network, to, 0)
	if err != nil {
		t.Fatalf("from %s to %s %s: %v", from.Name, network, to, err)
	}
	return answer
}

// refused checks that clients are refused immediately, all at the same time.
func refused(t *testing.T, from []*netlab.Host, network string, to ...netip.AddrPort) {
	t.Helper()
	parallel(from, to, func(from *netlab.Host, to netip.AddrPort) {
		if err := wantRefused(from, network, to); err != nil {
			t.Error(err)
		}
	})
}

// silent checks that clients get no answer of any kind.
func silent(t *testing.T, from []*netlab.Host, network string, to ...netip.AddrPort) {
	t.Helper()
	parallel(from, to, func(from *netlab.Host, to netip.AddrPort) {
		if err := wantSilence(from, network, to); err != nil {
			t.Error(err)
		}
	})
}

// wantRefused dials and must be refused immediately: a client that misses the answer to its SYN sends another
// one after a second.
func wantRefused(from *netlab.Host, network string, to netip.AddrPort) error {
	answer, err := from.Ask(network, to, 0)
	if again := netlab.SentAgain(err); !errors.Is(err, syscall.ECONNREFUSED) || again > 0 {
		return fmt.Errorf("from %s to %s %s: got %v, %v, having sent %d times again, want ECONNREFUSED", from.Name, network, to, answer, err, again)
	}
	return nil
}

// wantSilence dials and must get no answer of any kind.
func wantSilence(from *netlab.Host, network string, to netip.AddrPort) error {
	answer, err := from.Ask(network, to, silence)
	var netErr net.Error
	if !errors.As(err, &netErr) || !netErr.Timeout() {
		return fmt.Errorf("from %s to %s %s: got %v, %v, want a timeout", from.Name, network, to, answer, err)
	}
	return nil
}

// parallel runs f for every client and frontend at the same time.
func parallel(from []*netlab.Host, to []netip.AddrPort, f func(*netlab.Host, netip.AddrPort)) {
	var wg sync.WaitGroup
	for _, from := range from {
		for _, to := range to {
			wg.Go(func() { f(from, to) })
		}
	}
	wg.Wait()
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	netlab.Eventually(t, patience, f)
}
