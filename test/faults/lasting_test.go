package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// lastingFaults do not end by themselves. The log names the cause.
var lastingFaults = []struct {
	fault
	told string
}{
	{fault{"sendto", "error=EPERM:when=1+"}, "permission denied"},
	{fault{"sendto", "error=EMSGSIZE:when=1+"}, "raise net.core.wmem_max"},
	{fault{"sendto", "error=ENOMEM:when=1+"}, "cannot allocate memory"},
	{fault{"sendto", "error=ENOBUFS:when=1+"}, "no buffer space available"},
	{fault{"recvfrom", "error=ENOBUFS:when=1+"}, "no buffer space available"},
}

// TestLastingFaults: while nothing can be changed the rules keep serving, and
// the change is made once that is possible again.
func TestLastingFaults(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	n.write(states[0]...)
	p := n.start("--no-table-owner") // so that reading needs nothing sent
	n.applied()
	load := n.startLoad(both...)
	for i, f := range lastingFaults {
		t.Run(f.String(), func(t *testing.T) {
			n, p := n.in(t), p.in(t)
			before := len(p.log.String())
			tr := p.inject(f.fault)
			n.write(states[(i+1)%2]...)
			n.eventually(func() error {
				for line := range strings.Lines(p.log.String()[before:]) {
					if strings.Contains(line, "rules cannot be applied and stay unchanged") && strings.Contains(line, f.told) {
						return nil
					}
				}
				return fmt.Errorf("the log does not say %q: %s", f.told, p.log.String()[before:])
			})
			tr.detach()
			start := time.Now()
			n.followed()
			report(t, f, p, len(tr.injected()), before, time.Since(start), load)
		})
	}
}
