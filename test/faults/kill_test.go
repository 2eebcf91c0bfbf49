package faults

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// killSteps are changes in which the program is killed, as numbers of states.
var killSteps = []struct {
	name     string
	from, to int
}{
	{"lanes and a service are added", 0, 1},
	{"lanes and a service are removed", 1, 0},
	{"a service is scaled up", 0, 2},
	{"a service is scaled down", 2, 0},
}

// killCalls are the system calls at which the program is killed: before a
// transaction is sent, after it took place but before the program knows, and
// while rules and connections are read. At most so many of each are tried.
var killCalls = []struct {
	call string
	most int
}{{"sendto", 4}, {"recvmsg", 4}}

// TestKilledWhileChanging: killed at each message of a change, the program
// leaves what packets meet as it was before or as it is after; clients are not
// affected, and the next start completes the change.
func TestKilledWhileChanging(t *testing.T) {
	n := newNode(t, 4)
	two, both := n.states()
	wide := both[1]
	wide.pods = n.Pods[1:3]
	states := [][]service{two[0], two[1], {both[0], wide}}
	var rules []string // by state
	for _, s := range states {
		n.apply(s...)
		rules = append(rules, n.met())
	}
	load := n.startLoad(both...)
	for _, step := range killSteps {
		for _, c := range killCalls {
			t.Run(fmt.Sprint(step.name, ", at ", c.call), func(t *testing.T) {
				n := n.in(t)
				kills, slowest := 0, time.Duration(0)
				for n.killAt(c.call, kills+1, states[step.from], states[step.to]) {
					kills++
					if now := n.met(); now != rules[step.from] && now != rules[step.to] {
						t.Errorf("killed at call %d the program leaves half a change:\n%s", kills, now)
					}
					start := time.Now()
					p := n.start()
					n.applied()
					slowest = max(slowest, time.Since(start))
					p.stop()
					if kills == c.most {
						break
					}
				}
				if kills == 0 {
					t.Error("the program was never killed")
				}
				fmt.Fprintf(t.Output(), "%s, killed at %s | %d kills, each left the state before or after | %v at most | %s\n",
					step.name, c.call, kills, slowest.Round(time.Millisecond), load.take(t))
			})
		}
	}
}

// met returns the part of the rules that packets can meet, without unused lanes
// and elements.
func (n *node) met() string {
	n.t.Helper()
	var out string
	for _, family := range []string{"ip", "ip6"} {
		for _, set := range []string{"map " + family + " nftproxy services", "set " + family + " nftproxy cluster-ips"} {
			out += n.nft("list " + set)
		}
	}
	return out
}

// killAt starts the program at one state, gives it another one, and has it
// killed at the nth call during the change. It returns false if there is no
// such call.
func (n *node) killAt(call string, nth int, from, to []service) (killed bool) {
	n.t.Helper()
	n.write(from...)
	p := n.start()
	p.awaitLog("listening") // the rules may have been these before
	n.applied()
	tr := p.inject(fault{call, fmt.Sprintf("signal=KILL:when=%d", nth)})
	n.write(to...)
	n.eventually(func() error {
		if !p.lives() {
			return nil
		}
		if nth == 1 { // each change has such a call, but it may come after the change of the rules
			return errors.New("the program lives")
		}
		status, said := n.run(binary, n.arguments("diff")...)
		if !onlyIdle(status, said) {
			return fmt.Errorf("the program lives, but: %s", said)
		}
		return nil
	})
	tr.detach()
	return p.ended()
}

// isApplied reports whether the rules are those of a fresh render of the file.
func (n *node) isApplied() bool {
	n.t.Helper()
	status, said := n.run(binary, n.arguments("diff")...)
	if status > 1 {
		n.t.Fatalf("diff ends with status %d: %s", status, said)
	}
	return status == 0
}

// ended ends the program, and reports whether it was killed before.
func (p *process) ended() (killed bool) {
	p.node.t.Helper()
	p.awaitLog("listening")                   // before, the signal just ends it
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	<-p.gone
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	killed = ok && status.Signal() == syscall.SIGKILL
	if !killed && p.cmd.ProcessState.ExitCode() != 0 {
		p.node.t.Errorf("the program has ended by itself: %s", p.log.String())
	}
	return killed
}

// TestKilledWhileStarting: killed again and again while it starts, reads the
// rules and changes them, the program reaches the wanted state in the end.
func TestKilledWhileStarting(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	n.apply(states[0]...)
	load := n.startLoad(both...)
	for _, c := range []struct {
		call string
		step int
	}{{"sendto", 1}, {"sendmsg", 4}, {"recvmsg", 20}} {
		t.Run("at "+c.call, func(t *testing.T) {
			n := n.in(t)
			kills := 0
			for {
				for _, s := range states { // one of the two is a change
					if n.write(s...); !n.isApplied() {
						break
					}
				}
				p, _ := n.startWith(fault{c.call, fmt.Sprintf("signal=KILL:when=%d", 1+kills*c.step)})
				n.eventually(func() error {
					if p.lives() && !n.isApplied() {
						return errors.New("the program lives, but the rules are not those of the file")
					}
					return nil
				})
				if !p.ended() {
					break
				}
				kills++
			}
			if kills == 0 {
				t.Error("the program was never killed")
			}
			start := time.Now()
			p := n.start()
			n.applied()
			took := time.Since(start)
			p.stop()
			fmt.Fprintf(t.Output(), "starting, killed at %s | %d kills | %v after the last | %s\n", c.call, kills, took.Round(time.Millisecond), load.take(t))
		})
	}
}
