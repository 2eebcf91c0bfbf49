package soak

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// incident is a disturbance of the node, of nftproxy or of the API server. It
// returns a description, which is the same for incidents that are counted
// together. Clients must not notice it, unless it says so.
type incident func(*soak) (what string)

// harmless returns the incidents that do not end nftproxy.
func (s *soak) harmless() []incident {
	all := []incident{(*soak).meddle, (*soak).meddle, (*soak).meddle, (*soak).pauseProxy, (*soak).pauseServer}
	if s.services <= mostRestarts {
		all = append(all, (*soak).replaceServer, (*soak).loseServer)
	}
	return all
}

// ending returns these, and those that end nftproxy.
func (s *soak) ending() []incident {
	all := append(s.harmless(), (*soak).endProxy, (*soak).killProxy,
		func(s *soak) string { s.restartProxy(!s.shared); return s.mode() + " from now on" })
	if s.services <= mostRestarts {
		all = append(all, (*soak).startWithoutServer)
	}
	return all
}

// mostRestarts is the most Services with which the API server is restarted. It ends
// if it has not compared all of them with their addresses a minute after its start.
const mostRestarts = 20_000

// incidents is the record of what happened.
type incidents struct {
	happened []string                   // in the order of the first
	took     map[string][]time.Duration // until a change was served again
	repairs  map[string][]time.Duration
}

// runIncidents runs one incident after the other, each at least once if there
// is time, and samples the memory of nftproxy now and then.
func (s *soak) runIncidents(length time.Duration, kinds []incident) {
	s.T.Helper()
	if s.took == nil {
		s.took, s.repairs = map[string][]time.Duration{}, map[string][]time.Duration{}
	}
	begin, between := time.Now(), min(length/20, 5*time.Second)
	nextSample := begin.Add(between)
	for n, order := 0, s.Perm(len(kinds)); time.Since(begin) < length; n++ {
		await.Span(between/2 + time.Duration(s.Int64N(int64(between))))
		happens := pick(s.random, kinds...)
		if n < len(order) {
			happens = kinds[order[n]]
		}
		what, ended := happens(s), time.Now()
		s.changeServed()
		s.record(what, time.Since(ended))
		s.T.Logf("%v: %s; a change is served after %v", time.Since(s.began).Round(time.Second), what, time.Since(ended).Round(time.Millisecond))
		if time.Now().After(nextSample) {
			s.sample()
			nextSample = time.Now().Add(max(length/40, 3*time.Second))
		}
	}
}

func (s *soak) record(what string, took time.Duration) {
	if s.took[what] == nil {
		s.happened = append(s.happened, what)
	}
	s.took[what] = append(s.took[what], took)
}

func (s *soak) mode() string {
	if s.shared {
		return "other programs may change nftproxy's tables"
	}
	return "nftproxy owns its tables"
}

// restartProxy ends nftproxy and starts it again.
func (s *soak) restartProxy(shared bool) {
	s.T.Helper()
	s.proxy.Stop(s.T)
	s.launch(shared)
	s.hasSynced(s.Node, s.proxy)
}

func (s *soak) endProxy() string {
	s.restartProxy(s.shared)
	return "SIGTERM of nftproxy"
}

func (s *soak) killProxy() string {
	s.proxy.Kill()
	await.Span(time.Duration(s.IntN(2000)) * time.Millisecond)
	s.launch(s.shared)
	s.hasSynced(s.Node, s.proxy)
	return "SIGKILL of nftproxy"
}

// startWithoutServer restarts nftproxy while the API server is away.
func (s *soak) startWithoutServer() string {
	s.Server.Kill()
	s.proxy.Kill()
	s.launch(s.shared)
	await.Span(time.Duration(s.IntN(1000)) * time.Millisecond)
	s.startServer()
	s.hasSynced(s.Node, s.proxy)
	return "SIGKILL of nftproxy and of the API server"
}

func (s *soak) replaceServer() string {
	if s.oneIn(2) {
		s.Server.Kill()
		s.startServer()
		return "SIGKILL of the API server"
	}
	s.Server.Signal(s.T, syscall.SIGTERM)
	await.Span(2 * time.Second) // it waits for open connections, for a minute
	s.Server.Kill()
	s.startServer()
	return "SIGTERM of the API server"
}

// startServer starts the API server and waits until it is ready.
func (s *soak) startServer() {
	s.T.Helper()
	s.LaunchServer()
	s.awaitServer()
}

func (s *soak) awaitServer() {
	s.T.Helper()
	testbed.Eventually(s.T, func() error {
		s.keepServer()
		return s.ServerReady()
	})
}

// loseServer ends the API server, which only a change notices.
func (s *soak) loseServer() string {
	if err := s.Server.Cmd.Process.Kill(); err != nil {
		s.T.Error(err)
	}
	testbed.Eventually(s.T, func() error {
		if !s.Server.Ended(s.T) {
			return errors.New("the API server runs")
		}
		return nil
	})
	return "the API server ends by itself"
}

// keepServer starts the API server again if it has ended by itself, as the kubelet does: it gives
// up if it has not compared all Services with their addresses a minute after its start, which
// takes longer on a busy machine.
func (s *soak) keepServer() {
	s.T.Helper()
	if s.Server.Ended(s.T) {
		s.T.Logf("%v: the API server has ended by itself", time.Since(s.began).Round(time.Second))
		s.Server.Kill()
		s.LaunchServer()
	}
}

// hasSynced waits until an nftproxy has compared its rules with the kernel.
func (s *soak) hasSynced(host *netlab.Host, p *testbed.Process) {
	s.T.Helper()
	testbed.Eventually(s.T, func() error {
		s.keepServer()
		return s.Synced(host, p)
	})
}

func (s *soak) pauseProxy() string {
	s.pause(s.proxy)
	return "SIGSTOP of nftproxy"
}

func (s *soak) pauseServer() string {
	s.pause(s.Server)
	return "SIGSTOP of the API server"
}

func (s *soak) pause(p *testbed.Process) {
	p.Signal(s.T, syscall.SIGSTOP)
	await.Span(time.Duration(200+s.IntN(2000)) * time.Millisecond)
	p.Signal(s.T, syscall.SIGCONT)
}

// owned are attempts by other programs to change our tables, which have an
// owner.
var owned = []struct{ name, script, told string }{
	{"others flush the ruleset", "flush ruleset", ""},
	{"others delete a table", "delete table ip nftproxy", "Operation not permitted"},
	{"others delete the other table", "delete table ip6 nftproxy", "Operation not permitted"},
	{"others add a rule", "insert rule ip nftproxy prerouting drop", "Operation not permitted"},
	{"others flush a map", "flush map ip nftproxy services", "Operation not permitted"},
}

// edits are changes by other programs to our tables without an owner. Some of
// them disrupt service.
var edits = []struct {
	name, script string
	hurts        bool
}{
	{"others add a chain", "add chain ip nftproxy foreign { counter; }", false},
	{"others add a set", "add set ip6 nftproxy foreign { type ipv6_addr; }", false},
	{"others add an element", "add element ip nftproxy services { 10.96.255.255 . tcp . 1 : 0:1 }", false},
	{"others add a rule", "insert rule ip nftproxy dispatch counter", false},
	{"others empty sets", "add chain ip nftproxy foreign; flush set ip nftproxy source-ranges; flush set ip6 nftproxy hairpin", false},
	{"others delete a table", "delete table ip nftproxy", true},
	{"others flush the ruleset", "flush ruleset", true},
	{"others flush maps", "flush map ip nftproxy services; flush map ip6 nftproxy endpoints", true},
}

// meddle writes, or tries to write, to our tables as another program.
func (s *soak) meddle() string {
	if !s.shared {
		o := pick(s.random, owned...)
		out, err := s.nft(o.script)
		if (err == nil) != (o.told == "") || !strings.Contains(out, o.told) {
			s.T.Errorf("%s: %v, %s", o.name, err, out)
		}
		return o.name + ", who may not"
	}
	e := pick(s.random, edits...)
	if e.hurts {
		s.repaired(e.name, e.script)
		return e.name
	}
	// nft itself lists slowly while others change rules: the log tells.
	const said = `msg="rules repaired"`
	before := strings.Count(s.proxy.Log.String(), said)
	if out, err := s.nft(e.script); err != nil {
		s.T.Errorf("%s: %v, %s", e.name, err, out)
	}
	begin := time.Now()
	testbed.Eventually(s.T, func() error {
		if strings.Count(s.proxy.Log.String(), said) == before {
			return fmt.Errorf("%s: not repaired", e.name)
		}
		return nil
	})
	s.repairs[e.name] = append(s.repairs[e.name], time.Since(begin))
	return e.name
}

// repaired deletes rules that serve, and waits until all is served again.
// Clients wait during that time; open connections are not affected.
func (s *soak) repaired(name, script string) {
	s.load.gate.Lock()
	defer s.load.gate.Unlock()
	if out, err := s.nft(script); err != nil {
		s.T.Errorf("%s: %v, %s", name, err, out)
	}
	begin := time.Now()
	for _, j := range s.served {
		for _, to := range s.dialled(j) {
			s.answersOrRefuses(j, to)
		}
	}
	s.repairs[name] = append(s.repairs[name], time.Since(begin))
	for _, c := range s.load.clients {
		c.last = "" // the bindings of clients are gone
	}
}

// answersOrRefuses waits until a service does what it must at a target.
func (s *soak) answersOrRefuses(j *servedService, to testbed.Target) {
	s.T.Helper()
	wait := patience(50 * time.Millisecond)
	testbed.Eventually(s.T, func() error {
		answer, err := s.Client.Ask(to.Network, to.To, wait.next())
		if len(j.pods) == 0 && !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("%s at %s: got %v, %v, want ECONNREFUSED", j.Name, to, answer, err)
		}
		if len(j.pods) > 0 && err != nil {
			return fmt.Errorf("%s at %s: %w", j.Name, to, err)
		}
		return nil
	})
}

// patience is how long the next attempt may take. It is short at first, because nothing comes
// while rules are missing, and grows, because answers take longer on a busy machine.
type patience time.Duration

func (p *patience) next() time.Duration {
	now := time.Duration(*p)
	*p = patience(min(2*now, testbed.Strict))
	return now
}

// nft runs the nft command on the node and returns what it says.
func (s *soak) nft(command string, args ...string) (string, error) {
	var out netlab.LogBuffer
	cmd := exec.Command("nft", append([]string{command}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := s.Node.Run(cmd)
	return out.String(), err
}
