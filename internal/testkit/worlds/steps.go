package worlds

import (
	"fmt"
	"slices"
	"strings"
)

// Flags are arguments of the program.
type Flags struct {
	Rules  []string // decide about rules: diff needs the same ones
	Daemon []string // concern the process alone
}

// Owns reports whether the process owns its tables, where the kernel has such tables.
func (f Flags) Owns() bool { return !slices.Contains(f.Daemon, "--no-table-owner") }

// option is a flag that is given with a probability in per cent, with one of its values.
type option struct {
	percent int
	values  [][]string
}

var ruleOptions = []option{
	{40, [][]string{{"--answer-ping"}}},
	{40, [][]string{{"--load-balancer-cidrs", "203.0.113.0/24,2001:db8:2::/64"}}},
	{50, [][]string{{"--nodeport-addresses", "0.0.0.0/0,::/0"}, {"--nodeport-addresses", "primary"}, {"--nodeport-addresses", "192.0.2.0/24"}, {"--nodeport-addresses", "all"}}},
	{20, [][]string{{"--masquerade-all"}}},
	{30, [][]string{{"--scheduler", "random"}, {"--scheduler", "source-hash"}, {"--scheduler", "maglev"}}},
	{20, [][]string{{"--service-metrics"}}},
	{20, [][]string{{"--endpoint-metrics"}}},
	{40, [][]string{{"--observe", "refusals"}, {"--observe", "failures"}, {"--observe", "connections"}}},
	{75, [][]string{
		{"--cluster-cidr", "10.128.0.0/16,fd00:10:128::/48"}, {"--cluster-cidr", "10.128.0.0/16"},
		{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", Pods[0].Device},
		{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "pod-"}}},
}

var daemonOptions = []option{
	{30, [][]string{{"--no-table-owner"}}},
	{20, [][]string{{"--conntrack-tcp-cleanup"}}},
}

func (w *World) flags() Flags {
	return Flags{Rules: w.drawOptions(ruleOptions), Daemon: w.drawOptions(daemonOptions)}
}

func (d dice) drawOptions(of []option) (out []string) {
	for _, o := range of {
		if d.isIn(o.percent) {
			out = append(out, drawOne(d, o.values...)...)
		}
	}
	return out
}

// End is how a process ends before it is started again.
type End uint8

// Ends of a process.
const (
	GoesOn End = iota
	Terminated
	Killed
)

func (e End) String() string { return [...]string{"goes on", "terminated", "killed"}[e] }

// Step is what happens to a node between two comparisons.
type Step struct {
	End     End    // the process ends, the rest happens, and the process starts with the flags of the world
	Frozen  bool   // the process is stopped while files change
	Outside string // command of nft, by which another program changes the rules
	// Command are the words of a command about a Balance. It may fail.
	Command []string
}

// String describes the step in a failure.
func (s Step) String() string {
	out := s.End.String()
	if s.Frozen {
		out += ", frozen"
	}
	if s.Outside != "" {
		out += ", nft " + s.Outside
	}
	if s.Command != nil {
		out += ", nftproxy " + strings.Join(s.Command, " ")
	}
	return out
}

// vandals are what other programs do to our tables.
var vandals = []string{"flush chain ip nftproxy dispatch", "delete table ip6 nftproxy", "flush table ip nftproxy", "flush ruleset",
	"flush map ip nftproxy services"}

// Next draws a step, and makes its edits in the world.
func (w *World) Next() Step {
	switch n := w.IntN(100); {
	case n < 20:
		return w.restart()
	case n < 35 && len(w.Balances) > 0:
		return Step{Command: w.command()}
	case n < 42:
		w.edit()
		return Step{Frozen: true}
	case n < 55 && !w.Flags.Owns():
		w.edit()
		return Step{Outside: drawOne(w.dice, vandals...)}
	}
	w.edit()
	return Step{}
}

// restart draws what happens while the process does not run.
func (w *World) restart() Step {
	s := Step{End: drawOne(w.dice, Terminated, Killed)}
	if w.isIn(50) {
		w.edit()
	}
	if w.isIn(30) {
		w.Flags = w.flags()
	}
	if w.isIn(25) {
		s.Outside = drawOne(w.dice, vandals...)
	}
	return s
}

func (w *World) command() []string {
	b := drawOne(w.dice, sorted(w.Balances)...)
	server := drawOne(w.dice, b.Servers...)
	c := drawOne(w.dice,
		[]string{"set", b.Name, server, fmt.Sprintf("weight=%d", w.IntN(6))}, []string{"remove", b.Name, server},
		[]string{"add", b.Name, drawOne(w.dice, Pods...).IPv4.String() + ":8081"},
		[]string{"disable", b.Name, server}, []string{"enable", b.Name, server}, []string{"undo", "--all"}, []string{"undo", b.Name})
	if w.isIn(30) && slices.Contains([]string{"set", "remove", "disable"}, c[0]) {
		c = append(c, "--force")
	}
	return c
}
