package fastpath

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// testTime is how long a question of the self-test waits for its answer, and settleTime how
// long the kernel may take for what it does in the background.
const testTime, settleTime = 2 * time.Second, 15 * time.Second

// A test passes connections through a node of its own, on a kernel that does nothing else
// there: a client, a node and a server in network namespaces. Nothing of the machine changes.
type test struct {
	*room
	flows []*testFlow
}

// SelfTest reports whether the kernel can do it: connections over both families, TCP and UDP,
// with and without masquerading, go to a flow table and are answered there; datagrams follow
// when their endpoint is replaced, and TCP goes on; a network device goes and comes. The error
// says what failed.
func SelfTest(ctx context.Context) error { return selfTest(ctx, nil) }

// selfTest calls harm before each stage, unless that is nil: it breaks something, for a test of the test.
func selfTest(ctx context.Context, harm func(string, *test) error) (err error) {
	r, err := newRoom(testedFamilies())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	t := &test{room: r}
	defer func() {
		for _, f := range t.flows {
			reset(f.conn)
		}
	}()
	stop := context.AfterFunc(ctx, t.abort)
	defer stop()
	for _, stage := range []struct {
		name string
		run  func() error
	}{
		{"connections through a flow table", t.begin},
		{"an endpoint that is replaced", t.replace},
		{"a network device that goes and comes", t.unplug},
	} {
		if harm != nil {
			if err := harm(stage.name, t); err != nil {
				return err
			}
		}
		if err := stage.run(); err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
	}
	return nil
}

// testedFamilies returns the families to test: those that the kernel has.
func testedFamilies() []model.Family {
	families := []model.Family{model.IPv4}
	if fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0); err == nil {
		families = append(families, model.IPv6)
		_ = unix.Close(fd)
	}
	return families
}

// begin opens connections and waits until each is in the flow table.
func (t *test) begin() error {
	for _, family := range t.families {
		for _, network := range []string{"tcp", "udp"} {
			for _, port := range testPorts {
				f, err := t.open(network, family, port)
				if err != nil {
					return err
				}
				t.flows = append(t.flows, f)
			}
		}
	}
	for _, f := range t.flows {
		if err := t.isFast(f, 0); err != nil {
			return err
		}
	}
	return nil
}

// replace replaces the endpoint, with what nftproxy does then: it deletes the entries of
// datagrams.
func (t *test) replace() error {
	if err := t.translate(1); err != nil {
		return err
	}
	if err := t.forgetUDP(); err != nil {
		return err
	}
	for _, f := range t.flows {
		to := 0
		if f.network == "udp" {
			to = 1
		}
		if err := t.isFast(f, to); err != nil {
			return err
		}
	}
	return nil
}

// unplug removes the device to the server, and adds another one of the same name.
func (t *test) unplug() error {
	if err := t.removeDevice(); err != nil {
		return err
	}
	if err := t.table.hook(nodeToServer); err == nil {
		n, err := t.table.hooked()
		if err != nil {
			return err
		}
		if n > 2 {
			return fmt.Errorf("the flow table has %d devices, of which one is gone twice", n)
		}
	}
	if err := t.addDevice(); err != nil {
		return err
	}
	if err := t.table.hook(nodeToServer); err != nil {
		return fmt.Errorf("add the new device: %w", err)
	}
	for _, family := range t.families {
		f, err := t.open("udp", family, testPorts[0])
		if err != nil {
			return err
		}
		t.flows = append(t.flows, f)
		if err := t.isFast(f, 1); err != nil {
			return err
		}
	}
	return nil
}

// isFast asks until the packets of questions and answers no longer pass the hook forward.
func (t *test) isFast(f *testFlow, endpoint int) error {
	const questions = 4
	want := t.endpoint(f.family, endpoint).String()
	last := errors.New("it was not asked")
	for begin := time.Now(); time.Since(begin) < settleTime; {
		before, err := t.rules.forwarded()
		if err != nil {
			return err
		}
		last = nil
		for range questions {
			got, err := f.ask()
			if err == nil && got != want {
				err = fmt.Errorf("%s answers in place of %s", got, want)
			}
			if err != nil {
				last = fmt.Errorf("%s: %w", f, err)
				break
			}
		}
		after, err := t.rules.forwarded()
		if err != nil {
			return err
		}
		switch {
		case t.aborted():
			return context.Canceled
		case last != nil: // datagrams may be on their way
		case after-before < questions: // of twice as many packets
			return nil
		default:
			last = fmt.Errorf("%s: packets still pass the rules", f)
		}
	}
	return last
}
