package faults

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// many returns services without clients.
func (n *node) many(count int) []service {
	var out []service
	for i := range count {
		out = append(out, service{name: fmt.Sprint("other-", i), n: 10 + i, pods: n.Pods})
	}
	return out
}

// generation counts the transactions on the node.
func (n *node) generation() uint32 {
	n.t.Helper()
	return n.Node.TestGeneration(n.t)
}

// TestConcurrentWriter: another program that changes its own table as fast as
// it can interrupts every dump and every transaction.
func TestConcurrentWriter(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	others := n.many(200)
	n.write(append(states[0], others...)...)
	p := n.start()
	n.applied()
	load := n.startLoad(both...)
	writer := exec.Command("nft", "-i")
	writer.Stdin = endless("add table ip other; delete table ip other\n")
	if err := n.Node.Start(writer); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = writer.Process.Kill()
		_ = writer.Wait()
	}()
	for i := range 2 {
		for name, do := range map[string]func(){
			"change":  func() {},
			"restart": func() { p.stop(); p = n.start() },
		} {
			before := len(p.log.String())
			first, start := n.generation(), time.Now()
			n.write(append(states[(i+1)%2], others...)...)
			if do(); name == "restart" {
				before = 0
			}
			n.followed()
			took := time.Since(start)
			written := n.generation() - first
			report(t, fmt.Sprintf("another writer, %s, %d transactions", name, written), p, 0, before, took, load)
			if written < 20 {
				t.Errorf("%d transactions are too few to disturb", written)
			}
		}
	}
	p.stop()
}

// endless is a line that can be read again and again.
type endless string

func (e endless) Read(p []byte) (int, error) {
	if len(p) < len(e) {
		return 0, io.ErrShortBuffer
	}
	return copy(p, strings.Repeat(string(e), len(p)/len(e))), nil
}

// TestSmallSocketBuffer: the kernel rejects a transaction that does not fit
// into the socket's buffer, which cannot be made larger: the error has the
// remedy, and the rules stay as they are.
func TestSmallSocketBuffer(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	n.apply(states[0]...)
	load := n.startLoad(both...)
	before := n.met()
	n.write(append(states[1], n.many(240)...)...)
	// The program believes that the buffer has grown.
	pretend := newTracer(t).arguments(fault{"setsockopt", "retval=0:when=1+"}, "-qq", binary)
	start := time.Now()
	status, said := n.run(pretend[0], append(pretend[1:], n.arguments("apply")...)...)
	took := time.Since(start)
	if status != 2 || !strings.Contains(said, "message too long") || !strings.Contains(said, "net.core.wmem_max") {
		t.Errorf("status %d: %s", status, said)
	}
	if n.met() != before {
		t.Error("the rules have changed")
	}
	if status, said := n.run(binary, n.arguments("apply")...); status != 0 || !n.isApplied() {
		t.Errorf("then status %d: %s", status, said)
	}
	fmt.Fprintf(t.Output(), "EMSGSIZE of the kernel | ends with: %s | %v | %s\n", strings.TrimSpace(said), took.Round(time.Millisecond), load.take(t))
}

// TestTwoInstances may both write: with the same input they do not disturb each
// other; with different ones each repairs the changes of the other, less and
// less often, and logs which process made them, and Services of both inputs are
// served all the time.
func TestTwoInstances(t *testing.T) {
	n := newNode(t, 4)
	states, both := n.states()
	n.write(states[0]...)
	other := *n
	other.file += ".other"
	other.write(states[0]...)
	first := n.start("--no-table-owner")
	n.applied()
	load := n.startLoad(both...)
	second := other.start("--no-table-owner", "--metrics-bind-address=127.0.0.1:10250")
	n.eventually(func() error { // it has nothing to apply, and so logs nothing
		if !strings.Contains(second.log.String(), "listening") {
			return fmt.Errorf("the second instance says %q", second.log.String())
		}
		return nil
	})
	before := n.generation()
	await.Span(time.Second)
	if after := n.generation(); after != before {
		t.Errorf("with the same input there are %d transactions", after-before)
	}
	fmt.Fprintf(t.Output(), "two instances, same input | no transaction in 1s | - | %s\n", load.take(t))

	start := time.Now()
	other.write(states[1]...)
	for _, p := range []*process{first, second} {
		n.eventually(func() error {
			if log := p.log.String(); !strings.Contains(log, "process=nftproxy") || strings.Count(log, "rules repaired") < 2 {
				return fmt.Errorf("the log does not have two repairs with the process that caused them: %s", log)
			}
			return nil
		})
	}
	transactions, took := n.generation()-before, time.Since(start)
	if most := 10 + 10*uint32(took/time.Second); transactions > most {
		t.Errorf("%d transactions in %v: they fight without a pause", transactions, took)
	}
	fmt.Fprintf(t.Output(), "two instances, different input | %d transactions in %v | - | %s\n", transactions, took.Round(time.Millisecond), load.take(t))
	second.stop()
	start = time.Now()
	n.followed()
	report(t, "one of two instances ends", first, 0, 0, time.Since(start), load)
	first.stop()
}
