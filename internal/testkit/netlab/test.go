package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// Test is the part of a test or a benchmark that a laboratory uses.
type Test interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
	Error(args ...any)
	Cleanup(f func())
}

// TestLab makes a laboratory that ends with the test. It skips the test where
// that is not permitted.
func TestLab(t Test, pods int) *Lab {
	t.Helper()
	l, err := New(pods)
	check(t, err)
	endWith(t, l.Close)
	return l
}

// TestNamespace makes a namespace that ends with the test. It skips the test
// where that is not permitted.
func TestNamespace(t Test) *Namespace {
	t.Helper()
	ns, err := NewNamespace()
	check(t, err)
	endWith(t, ns.Close)
	return ns
}

// check skips the test where the kernel denies network namespaces to this
// process, and ends it on any other error.
func check(t Test, err error) {
	t.Helper()
	if errors.Is(err, syscall.EPERM) {
		t.Skip(fmt.Sprintf("%v; run the tests as root, or allow user namespaces (user.max_user_namespaces, "+
			"kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)", err))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func endWith(t Test, end func() error) {
	t.Cleanup(func() {
		t.Helper()
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// Eventually is [await.Within].
func Eventually(t Test, patience time.Duration, f func() error) {
	t.Helper()
	await.Within(t, patience, f)
}

// TestGeneration returns [Namespace.Generation].
func (n *Namespace) TestGeneration(t Test) uint32 {
	t.Helper()
	g, err := n.Generation()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// NFT runs nft in the namespace and returns its output.
func (n *Namespace) NFT(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := n.Run(cmd); err != nil {
		t.Fatalf("nft %s: %v\n%s", strings.Join(args, " "), err, problem.String())
	}
	return out.String()
}

// resizable is the length of a listing, in bytes, from which it may need more than one datagram.
const resizable = 8 << 10

// Listing returns what nft lists, of rules that do not change. The kernel resizes the hash tables
// of sets some time after elements were added. What is listed meanwhile lacks elements and has
// others twice, which nft does not notice: a long listing is the result when it comes twice.
func Listing(nft func(args ...string) string, args ...string) string {
	last := nft(args...)
	for len(last) >= resizable {
		now := nft(args...)
		if now == last {
			break
		}
		last = now
	}
	return last
}

// TestForwarding switches forwarding of both families: "1" is on, and "0" off.
func (n *Namespace) TestForwarding(t Test, value string) {
	t.Helper()
	check(t, n.Do(func() error {
		return sysctl([][2]string{{"net/ipv4/ip_forward", value}, {"net/ipv6/conf/all/forwarding", value}})
	}))
}
