package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// changeFaults are injected while the rules are changed.
var changeFaults = []fault{
	{"recvmsg", "error=ENOBUFS:when=1"}, // the transaction took place
	{"recvmsg", "error=ENOBUFS:when=2"},
	{"recvmsg", "error=ENOBUFS:when=1..5"},
	{"recvmsg", "error=ENOMEM:when=1..2"},
	{"recvmsg", "error=EINTR:when=1"},
	{"recvmsg", "error=EAGAIN:when=1"},
	{"sendto", "error=ENOBUFS:when=1"}, // it did not
	{"sendto", "error=ENOBUFS:when=1..3"},
	{"sendto", "error=EINTR:when=1..3"},
	{"sendto", "error=EAGAIN:when=1"},
	{"recvfrom", "error=EAGAIN:when=1"},
	{"recvfrom", "error=ENOBUFS:when=1..2"},
	{"recvfrom,ppoll", "error=EINTR:when=1..3"},
	{"sendto", "error=ENOMEM:when=1"},
	{"sendto", "error=EBUSY:when=1"},
	{"sendto", "error=EPERM:when=1"},
	{"sendto", "error=EMSGSIZE:when=1"},
	{"sendmsg", "error=ENOBUFS:when=1..2"},
	{"sendto,sendmsg,recvmsg", "error=ENOBUFS:when=2..11+3"},
}

// startFaults are injected while the program starts and reads the rules.
var startFaults = []fault{
	{"recvmsg", "error=ENOBUFS:when=1"},
	{"recvmsg", "error=ENOBUFS:when=4"},
	{"recvmsg", "error=ENOBUFS:when=5..12+7"},
	{"recvmsg", "error=ENOBUFS:when=3..5"},
	{"sendmsg", "error=ENOBUFS:when=2..4"},
	{"sendmsg", "error=ENOMEM:when=2..40+5"},
	{"sendto", "error=ENOBUFS:when=1..2"},
	{"sendto", "error=ENOMEM:when=2"},
	{"recvfrom", "error=EINTR:when=1..2"},
	{"recvfrom,ppoll", "error=EINTR:when=1..3"},
}

// states returns two inputs to change between: one has an additional service,
// the other has other endpoints, and so another lane. The services of both are
// loaded.
func (n *node) states() (states [2][]service, both []service) {
	steady := service{name: "steady", n: 1, pods: n.Pods[:2]}
	web := service{name: "web", n: 2, pods: n.Pods[:1], changes: true}
	extra := service{name: "extra", n: 3, pods: n.Pods}
	wide := web
	wide.pods = n.Pods[:3]
	return [2][]service{{steady, web}, {steady, wide, extra}}, []service{steady, web}
}

// TestFaultsOfChanges: after any fault during a change, the program lives, the
// rules equal a fresh render, and every request is answered.
func TestFaultsOfChanges(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	n.write(states[0]...)
	p := n.start()
	n.applied()
	load := n.startLoad(both...)
	for i, f := range changeFaults {
		t.Run(f.String(), func(t *testing.T) {
			n, p := n.in(t), p.in(t)
			before := len(p.log.String())
			tr := p.inject(f)
			start := time.Now()
			n.write(states[(i+1)%2]...)
			n.followed()
			took := time.Since(start)
			// Conntrack is cleaned after the rules are there.
			n.eventually(tr.happened)
			tr.detach()
			report(t, f, p, len(tr.injected()), before, took, load)
		})
	}
	p.stop()
	n.start()
	n.applied()
}

// TestFaultsOfStart: the same during the start of the program. The existing
// rules serve in the meantime.
func TestFaultsOfStart(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	n.write(states[0]...)
	p := n.start()
	n.applied()
	p.stop()
	load := n.startLoad(both...)
	for i, f := range startFaults {
		t.Run(f.String(), func(t *testing.T) {
			n := n.in(t)
			n.write(states[(i+1)%2]...)
			start := time.Now()
			p, tr := n.startWith(f)
			n.applied()
			took := time.Since(start)
			n.eventually(tr.happened)
			report(t, f, p, len(tr.injected()), 0, took, load)
			p.stop()
		})
	}
}

// report checks that the program lives and that no request was lost, and logs a
// line: the fault, its effect, the time from the change to the rules, including
// the commands that check, and the requests during that time.
func report(t *testing.T, what any, p *process, faults, before int, took time.Duration, l *load) {
	t.Helper()
	if !p.lives() {
		t.Errorf("the program has ended: %s", p.log.String())
	}
	log := p.log.String()[before:]
	happened := fmt.Sprintf("%d faults, %d errors are logged", faults, strings.Count(log, "level=ERROR"))
	if _, first, ok := strings.Cut(log, "level=ERROR msg="); ok {
		first, _, _ = strings.Cut(first, "\n")
		happened += ": " + first
	}
	fmt.Fprintf(t.Output(), "%v | %s | %v | %s\n", what, happened, took.Round(time.Millisecond), l.take(t))
}
