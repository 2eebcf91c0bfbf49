package kernel

import (
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// watch returns the interventions of other programs.
func (s *sandbox) watch(t testing.TB) <-chan Intervention {
	t.Helper()
	var w *Watcher
	if err := s.ns.Do(func() (err error) { w, err = Watch(s.Conn); return err }); err != nil {
		t.Fatal(err)
	}
	seen, ended := make(chan Intervention, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			i, err := w.Next()
			if err != nil {
				return
			}
			seen <- i
		}
	}()
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return seen
}

// next waits for an intervention.
func next(t *testing.T, seen <-chan Intervention) Intervention {
	t.Helper()
	return await.Receive(t, seen, "intervention")
}

// TestWatch: the watcher names the process, and what it has done to our tables;
// it ignores other tables, bindings and our own transactions.
func TestWatch(t *testing.T) {
	desired := workload.Sample()
	endpoints := desired.Tables[0].Set("endpoints")
	key := endpoints.KeyText(endpoints.Elements[0].Key)
	for _, c := range []struct {
		name, command string
		counts        map[string]int
		touched       string // how the first one begins
		urgent        bool
	}{
		{"element added", "add element ip nftproxy services { 192.0.2.1 . tcp . 80 : 0:2 }",
			map[string]int{"element": 1}, "add element { 192.0.2.1 . tcp . 80 : 0:2 } of map ip nftproxy services", false},
		{"element deleted", "delete element ip nftproxy endpoints { " + key + " }",
			map[string]int{"element": 1}, "delete element { " + endpoints.ElementText(&endpoints.Elements[0]) + " } of map ip nftproxy endpoints", false},
		{"interval deleted", "delete element ip nftproxy service-cidrs { 10.96.0.0/12 }",
			map[string]int{"element": 1}, "delete element { 10.96.0.0 } of set ip nftproxy service-cidrs", false},
		{"rule added", "add rule ip6 nftproxy dispatch counter accept",
			map[string]int{"rule": 1}, "add rule of chain ip6 nftproxy dispatch", true},
		{"chain flushed", "flush chain ip nftproxy refuse",
			map[string]int{"rule": 2}, "delete rule of chain ip nftproxy refuse", true},
		{"chain added", "add chain ip nftproxy extra { type filter hook input priority 0; }",
			map[string]int{"chain": 1}, "add chain ip nftproxy extra", true},
		{"set added", "add set ip nftproxy extra { type ipv4_addr; flags timeout; }",
			map[string]int{"set": 1}, "add set ip nftproxy extra", true},
		{"object added", "add counter ip nftproxy extra",
			map[string]int{"object": 1}, "add object in table ip nftproxy", true},
		{"table deleted", "delete table ip6 nftproxy",
			map[string]int{"table": 1}, "delete table ip6 nftproxy", true},
		{"ruleset flushed", "flush ruleset",
			map[string]int{"table": 2}, "delete table ip nftproxy", true},
		{"map flushed", "flush map ip nftproxy endpoints",
			map[string]int{"element": len(endpoints.Elements)}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			seen := s.watch(t)
			s.apply(t, desired)
			s.nft(t, "add", "table", "ip", "other")
			s.nft(t, "add", "chain", "ip", "other", "dispatch")
			cmd := exec.Command("nft", strings.Fields(c.command)...)
			if err := s.ns.Run(cmd); err != nil {
				t.Fatal(err)
			}
			s.nft(t, "add", "table", "ip", "another")
			// The end of the intervention.
			s.nft(t, "add", "table", "ip", "nftproxy", "{ chain last { } ; }")
			i := next(t, seen)
			if i.Missed || !maps.Equal(i.Counts, c.counts) || !strings.HasPrefix(i.Touched[0], c.touched) {
				t.Errorf("got %+v", i)
			}
			if i.Urgent != c.urgent {
				t.Errorf("urgent: %t", i.Urgent)
			}
			if i.By.Name != "nft" || i.By.PID != cmd.Process.Pid {
				t.Errorf("by %s, want nft, %d", i.By, cmd.Process.Pid)
			}
			if i := next(t, seen); i.Counts["chain"] != 1 || !slices.Contains(i.Touched, "add chain ip nftproxy last") {
				t.Errorf("got %+v", i)
			}
		})
	}
}

// TestWatchNamesProcess: a thread is reported as its process.
func TestWatchNamesProcess(t *testing.T) {
	s := newSandbox(t)
	seen := s.watch(t)
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, workload.Sample())
	want := host.Process{PID: os.Getpid(), Name: strings.TrimSpace(string(name))}
	onThread(func() {
		s.another(t).apply(t, &nft.Ruleset{})
		if i := next(t, seen); i.By != want {
			t.Errorf("by %s, want %s", i.By, want)
		}
	})
}

// TestWatchOfAnotherDaemon: what a process of the same name changes is not urgent, which
// would make two daemons with different input fight; a table that is gone always is.
func TestWatchOfAnotherDaemon(t *testing.T) {
	s := newSandbox(t)
	seen := s.watch(t)
	s.apply(t, workload.Sample())
	other := s.another(t)
	other.apply(t, workload.Sticky(model.PolicyCluster, time.Hour, "1 2"))
	if i := next(t, seen); i.Urgent || i.Counts["rule"] == 0 {
		t.Errorf("rules of another daemon: %+v", i)
	}
	other.apply(t, &nft.Ruleset{})
	for i := next(t, seen); !i.Urgent; i = next(t, seen) {
	}
}

// onThread runs f on a thread that is not the main one.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends
		if unix.Gettid() == unix.Getpid() {
			onThread(f)
			return
		}
		f()
	}()
	<-done
}

// TestWatchLeavesBindings: changed bindings of session affinity are not reported.
func TestWatchLeavesBindings(t *testing.T) {
	s := newSandbox(t)
	seen := s.watch(t)
	s.apply(t, workload.Sticky(model.PolicyCluster, time.Hour, "1 2"))
	s.nft(t, "add", "element", "ip", "nftproxy", "affinity", "{ 192.168.7.1 . tcp . 30080 . 198.51.100.1 timeout 1h : 10.128.0.1 . 8080 }")
	s.nft(t, "flush", "map", "ip", "nftproxy", "affinity")
	s.nft(t, "flush", "set", "ip", "nftproxy", "cluster-ips")
	if i := next(t, seen); !maps.Equal(i.Counts, map[string]int{"element": 2}) || !strings.Contains(i.Touched[0], nft.ClusterIPsSet) {
		t.Errorf("got %+v", i)
	}
}

// TestWatchNamesAFew: of many objects a few are named, and all are counted or
// reported as missed.
func TestWatchNamesAFew(t *testing.T) {
	s := newSandbox(t)
	seen := s.watch(t)
	s.apply(t, workload.Scenario(1000, 2, 0))
	s.nft(t, "flush", "map", "ip", "nftproxy", "endpoints")
	if i := next(t, seen); !i.Missed && (i.Counts["element"] != 2000 || len(i.Touched) != maxTouched) {
		t.Errorf("got %d elements, %d by name", i.Counts["element"], len(i.Touched))
	}
}

// TestWatchPauses: the watch is off during large transactions of our own, and
// reports that other programs may have changed something in the meantime.
func TestWatchPauses(t *testing.T) {
	s := newSandbox(t)
	seen := s.watch(t)
	s.apply(t, workload.Scenario(3000, 2, 0))
	s.apply(t, workload.Scenario(10, 2, 0))
	resume := s.watcher.pauseWatch(s.Conn)
	s.nft(t, "flush", "set", "ip", "nftproxy", "cluster-ips")
	resume(false)
	if i := next(t, seen); !i.Missed {
		t.Errorf("got %+v", i)
	}
	s.nft(t, "flush", "chain", "ip", "nftproxy", "refuse")
	if i := next(t, seen); i.Counts["rule"] != 2 {
		t.Errorf("got %+v", i)
	}
}

// TestWatchFails: a watcher whose socket has failed opens another one, and reports that it may have missed
// something.
func TestWatchFails(t *testing.T) {
	s := newSandbox(t)
	var w *Watcher
	if err := s.ns.Do(func() (err error) { w, err = Watch(s.Conn); return err }); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	seen := func() (i Intervention) {
		t.Helper()
		err := s.ns.Do(func() error {
			return await.Call(t, "intervention", w.Stop, func() (err error) { i, err = w.Next(); return err })
		})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	s.apply(t, workload.Scenario(10, 2, 0))
	if err := w.currentSocket().Close(); err != nil {
		t.Fatal(err)
	}
	if i := seen(); !i.Missed {
		t.Errorf("got %+v", i)
	}
	s.apply(t, workload.Scenario(3000, 2, 0)) // pauses it
	s.nft(t, "flush", "chain", "ip", "nftproxy", "refuse")
	if i := seen(); i.Counts["rule"] != 2 {
		t.Errorf("got %+v", i)
	}
}

// TestWatchOverflow: a watcher that does not keep up reports it.
func TestWatchOverflow(t *testing.T) {
	s := newSandbox(t)
	var w *Watcher
	if err := s.ns.Do(func() (err error) { w, err = Watch(s.Conn); return err }); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s.apply(t, workload.Scenario(10000, 4, 0))
	s.nft(t, "flush", "map", "ip", "nftproxy", "endpoints")
	for {
		i, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if i.Missed {
			return
		}
	}
}
