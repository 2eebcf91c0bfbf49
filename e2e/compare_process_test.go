package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// cpu returns the processor time that a process has used, with that of those
// that it has started and waited for.
func (p *process) cpu(t testing.TB) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		t.Fatal(err)
	}
	// The name, which ends with the last parenthesis, is field 2.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if fields[0] == "Z" {
		t.Fatalf("%s has ended", p.name)
	}
	var ticks int
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("%s: %v", p.proc("stat"), err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// switches returns how often the threads of a process have been switched to.
func (p *process) switches(t testing.TB) (n int) {
	t.Helper()
	threads, err := filepath.Glob(p.proc("task/*/status"))
	if err != nil || len(threads) == 0 {
		t.Fatalf("%s: %d threads, %v", p.name, len(threads), err)
	}
	for _, file := range threads {
		status, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(status)) {
			if key, value, _ := strings.Cut(line, ":"); strings.HasSuffix(key, "voluntary_ctxt_switches") {
				count, _ := strconv.Atoi(strings.TrimSpace(value))
				n += count
			}
		}
	}
	return n
}

// memory returns that of a process.
func (p *process) memory(t testing.TB) *results.Memory {
	t.Helper()
	m, err := results.MemoryOf(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

// children returns the processes that a process has started and not yet waited
// for.
func (p *process) children() (pids []int) {
	lists, _ := filepath.Glob(p.proc("task/*/children"))
	for _, file := range lists {
		list, _ := os.ReadFile(file)
		for f := range strings.FieldsSeq(string(list)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func (p *process) proc(file string) string {
	return fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file)
}

// busy tells whether a process uses the processor, or waits for one that it has
// started.
func (p *process) busy(t testing.TB, since time.Duration) bool {
	t.Helper()
	return p.cpu(t)-since > idleCPU || len(p.children()) > 0
}

// mostMemory returns the most memory that an ended process had, or one of those
// that it has started and waited for, in bytes.
func (p *process) mostMemory() uint64 {
	return uint64(p.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) << 10
}

// start starts the proxy and returns when that was.
func (c *comparison) start() time.Time {
	c.c.t.Helper()
	file, config := filepath.Join(c.home, string(c.name)+".conf"), `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: `+c.c.kubeconfig(proxyUser)+`}
hostnameOverride: `+nodeName+`
clusterCIDR: "`+clusterCIDRs+`"
conntrack: {maxPerCore: 0}
nftables: {minSyncPeriod: `+c.period.String()+`}
`+c.contender.config
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		c.c.t.Fatal(err)
	}
	begin := time.Now()
	c.proxy = start(c.c.t, c.c.Node, c.program, append(c.verb(), "--config", file)...)
	return begin
}

// verb returns what comes before the flags.
func (c *comparison) verb() []string {
	if c.name == results.Nftproxy {
		return []string{"run"}
	}
	return nil
}

func (c *comparison) stop() {
	c.c.t.Helper()
	c.proxy.end(c.c.t)
	c.recordPeak(c.proxy.mostMemory())
}

// flush removes all rules.
func (c *comparison) flush() {
	c.c.t.Helper()
	c.c.run(exec.Command("nft", "flush", "ruleset"))
	if _, ok := c.kernel.next(c.c.t, patience); !ok {
		c.c.t.Fatal("no transaction of nft flush ruleset")
	}
}
