package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 14.15: without rights, what can be seen is checked, and the rest is named.
func TestCheckWithoutRights(t *testing.T) {
	ns := netlab.TestNamespace(t)
	ns.TestForwarding(t, "1")
	p := startConfined(t, ns, "-all", "check")
	err := p.Wait()
	out := p.output.String()
	if err != nil || !strings.Contains(out, "unseen   nat-chains: cannot read the rules of nf_tables: it needs the capability CAP_NET_ADMIN\n         do: run as root\n") ||
		!strings.Contains(out, "no problem seen as a single machine: ") || !strings.Contains(out, "ok       forwarding: IPv4 forwards") {
		t.Errorf("%v: %s%s", err, out, p.log.String())
	}
}

// 14.16: with --stay, the process runs on a machine that is ready, and ends on another one.
func TestCheckStays(t *testing.T) {
	ns := netlab.TestNamespace(t)
	ns.TestForwarding(t, "0")
	start(t, ns, "nftproxy", "check", "--stay").ends(t, cli.CodeNo)
	ns.TestForwarding(t, "1")
	p := start(t, ns, "nftproxy", "check", "--stay")
	eventually(t, "the verdict", func() bool { return strings.Contains(p.output.String(), "ready as") })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(t, 0)
}
