package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func TestMain(m *testing.M) { os.Exit(netlab.Run(m.Run)) }

// TestOpen: flows of both protocols reach a server and come back, and each datagram is from
// a port of its own that no other socket has.
func TestOpen(t *testing.T) {
	t.Parallel()
	lab := netlab.TestLab(t, 2)
	server, client := lab.Pods[0], lab.Pods[1]
	if err := AllPorts(client); err != nil {
		t.Fatal(err)
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP} {
		for _, f := range model.Families {
			s, err := Listen(p, []*netlab.Host{server}, f, 8080)
			if err != nil {
				t.Fatal(err)
			}
			const flows = 20
			taken, err := client.ListenPacket("udp", fmt.Sprintf(":%d", firstPort+3))
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Open(client, netip.AddrPortFrom(server.Address(f), 8080), flows)
			if err != nil || c.Processor <= 0 || c.Wall <= 0 {
				t.Errorf("%v, %v: got %+v, %v", p, f, c, err)
			}
			if p == model.UDP && s.port != firstPort+flows+1 {
				t.Errorf("the last port is %d, want %d", s.port, firstPort+flows+1)
			}
			if err := errors.Join(s.Close(), taken.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNoServer: a flow that reaches no server is an error, and not a short time.
func TestNoServer(t *testing.T) {
	t.Parallel()
	lab := netlab.TestLab(t, 2)
	for _, p := range []model.Protocol{model.TCP, model.UDP} {
		s, err := Listen(p, lab.Pods[:1], model.IPv4, 8080)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(lab.Pods[1], netip.AddrPortFrom(lab.Pods[0].IPv4, 8081), 1); err == nil {
			t.Errorf("%v: a port without a server is no error", p)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
