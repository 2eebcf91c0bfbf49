package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// servers are the addresses of the endpoints.
var servers = netip.MustParsePrefix("10.200.0.0/16")

const (
	perService    = 4
	mostEndpoints = 60_000
	serverPort    = 8080
)

// lab is a node, and a machine that has the addresses of all endpoints.
type lab struct {
	*netlab.Lab
	listener net.Listener
	accepted atomic.Int64
	daemon   *exec.Cmd
	log      netlab.LogBuffer // of the daemon
}

func newLab() (l *lab, err error) {
	l = &lab{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.Lab, err = netlab.New(0); err != nil {
		return l, err
	}
	// What the node has no route for goes to the client.
	if err := l.Client.Do(haveAddresses); err != nil {
		return l, err
	}
	if l.listener, err = l.Client.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", serverPort)); err != nil {
		return l, err
	}
	go l.serve()
	return l, nil
}

// haveAddresses makes the addresses of endpoints local.
func haveAddresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	dst := &net.IPNet{IP: servers.Addr().AsSlice(), Mask: net.CIDRMask(servers.Bits(), 32)}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL,
		Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST})
}

// serve accepts connections until the listener is closed.
func (l *lab) serve() {
	for {
		c, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_ = c.Close()
			l.accepted.Add(1)
		}
	}
}

// start starts nftproxy for a number of endpoints, and waits until it has applied its rules.
// An interval of zero is no check.
func (l *lab) start(ctx context.Context, p *plan, endpoints int, interval time.Duration) error {
	file := filepath.Join(p.dir, "balances.yaml")
	if err := os.WriteFile(file, []byte(balances(endpoints, interval)), 0o644); err != nil {
		return err
	}
	l.daemon = exec.Command(p.nftproxy, "run", "-f", file, "--hostname-override", l.Node.Name, "--cluster-cidr", netlab.ClusterCIDRv4.String(),
		"--healthz-bind-address", health)
	l.daemon.Stderr = &l.log
	if err := l.Node.Start(l.daemon); err != nil {
		return err
	}
	return l.await(ctx, "its first rules", func() bool {
		client := http.Client{Transport: &http.Transport{DialContext: l.Node.DialContext, DisableKeepAlives: true}}
		answer, err := client.Get("http://" + health + "/healthz")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
}

// health is the address of the daemon's health server.
const health = "127.0.0.1:10256"

// patience is longer than anything takes beside its interval.
const patience = 2 * time.Minute

// await waits for a state of the daemon.
func (l *lab) await(ctx context.Context, what string, reached func() bool) error {
	const step = 5 * time.Millisecond
	for until := time.Now().Add(patience); !reached(); time.Sleep(step) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(until) {
			return fmt.Errorf("nftproxy has not reached %s after %v\n%s", what, patience, l.log.String())
		}
	}
	return nil
}

func (l *lab) close() error {
	var err error
	if l.daemon != nil {
		_ = l.daemon.Process.Kill()
		_ = l.daemon.Wait() // the error says that it was killed
	}
	if l.listener != nil {
		err = l.listener.Close()
	}
	if l.Lab != nil {
		err = errors.Join(err, l.Lab.Close())
	}
	return err
}

// balances returns Balances of four endpoints each.
func balances(endpoints int, interval time.Duration) string {
	var text strings.Builder
	check := ""
	if interval > 0 {
		check = fmt.Sprintf("check: {tcp, interval: %s}\n", interval)
	}
	for i := 0; i < endpoints; i += perService {
		service := nth(netip.MustParseAddr("203.0.0.0"), i/perService)
		var to []string
		for j := range perService {
			to = append(to, netip.AddrPortFrom(nth(servers.Addr(), i+j), serverPort).String())
		}
		fmt.Fprintf(&text, "---\nkind: Balance\nname: web-%d\nlisten: %s:80\nbackends: [%s]\n%s", i, service, strings.Join(to, ", "), check)
	}
	return text.String()
}

// nth returns address n of a network; the first one is not for use.
func nth(network netip.Addr, n int) netip.Addr {
	b := network.As4()
	n++
	b[2], b[3] = byte(n>>8), byte(n)
	return netip.AddrFrom4(b)
}
