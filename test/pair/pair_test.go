package pair

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
)

// up starts everything on both machines. a serves.
func (l *lab) up(conntrackd bool) {
	l.t.Helper()
	for _, m := range []*machine{l.a, l.b} {
		m.configure()
		m.startNFTProxy()
		if conntrackd {
			m.startConntrackd()
		}
	}
	l.a.startKeepalived("MASTER")
	l.a.owns()
	l.b.startKeepalived("BACKUP")
}

// intact checks that no connection is broken, and that no flow has another server.
func (o *load) intact(when string) {
	o.l.t.Helper()
	o.settle()
	for kind, r := range o.take() {
		fmt.Fprintf(o.l.t.Output(), "%s: %s: %v\n", when, kind, r)
		if r.broken > 0 || r.moved > 0 {
			o.l.t.Errorf("%s: %s: %v", when, kind, r)
		}
	}
}

// chosen returns which server new connections of each client reach.
func (l *lab) chosen() map[string]string {
	l.t.Helper()
	out := make(map[string]string)
	for _, c := range l.clients {
		for _, f := range model.Families {
			for network, port := range map[string]uint16{"tcp": 80, "udp": 53} {
				a, err := c.Ask(network, netip.AddrPortFrom(virtual[f], port), hangs)
				if err != nil {
					l.t.Fatalf("%s asks over %s: %v", c.Address(f), network, err)
				}
				if a.Client != c.Address(f) {
					l.t.Errorf("the server sees %s as %s", c.Address(f), a.Client)
				}
				out[fmt.Sprint(c.Address(f), network)] = a.Name
			}
		}
	}
	return out
}

// TestSwitch: 3.40, 3.41. One machine is cut off, returns and takes over again while
// connections are open. None breaks, and source-hash chooses the same endpoints on both.
func TestSwitch(t *testing.T) {
	l := newLab(t)
	l.up(true)
	onA := l.chosen()
	o := l.startLoad()
	l.b.knows(2 * clients)
	for _, m := range []*machine{l.a, l.b} {
		m.isFine()
	}

	l.a.unplug()
	l.b.owns()
	o.intact("the machine that serves is cut off")
	if diff := cmp.Diff(onA, l.chosen()); diff != "" {
		t.Errorf("the second machine chooses other endpoints (-first +second):\n%s", diff)
	}

	l.a.enters("FAULT", 1)
	l.a.plug()
	l.a.enters("BACKUP", 2)
	l.a.knows(2 * clients)
	o.intact("it returns")

	l.b.keepalived.stop()
	l.a.owns()
	l.b.unplug()
	o.intact("keepalived on the second machine is stopped, and the machine switched off")
}

// isFine checks 3.42: nftproxy finds nothing wrong, whether the machine serves or stands by.
func (m *machine) isFine() {
	m.l.t.Helper()
	for _, args := range [][]string{{"status"}, {"check", "-f", filepath.Join(m.dir, "web.yaml")}} {
		out, err := m.ask(binary, args...)
		if err != nil {
			m.l.t.Errorf("%s: nftproxy %v: %v\n%s", m.Name, args, err, out)
		}
	}
}

// TestHigherAddress is TestSwitch with the machine that is cut off as the one with the higher
// address, which wins if both serve. Connections that were opened meanwhile stay.
func TestHigherAddress(t *testing.T) {
	l := newLab(t)
	l.a, l.b = l.b, l.a
	l.up(true)
	before := l.startLoad()
	l.b.knows(2 * clients)
	l.a.unplug()
	l.b.owns()
	before.intact("the machine that serves is cut off")
	meanwhile := l.startLoad()
	l.a.enters("FAULT", 1)
	l.a.plug()
	l.a.enters("BACKUP", 2)
	before.intact("it returns")
	meanwhile.intact("it returns, connections opened meanwhile")
}

// TestPage compares the files of the page with those that the tests use.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/high-availability.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("../../deploy/pair")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join("../../deploy/pair", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "```\n"+string(text)+"```\n") {
			t.Errorf("the page does not have %s as it is in deploy/pair", f.Name())
		}
	}
	if len(files) != 6 {
		t.Errorf("deploy/pair has %d files, want 6", len(files))
	}
}
