package soak

import (
	"math/rand/v2"
	"os/exec"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// firewall is a ruleset of another program, which is loaded again and again.
const firewall = `table inet firewall
delete table inet firewall
table inet firewall {
	set ports { type inet_service; elements = { 22, 80, 443 }; }
	chain input { type filter hook input priority 0; policy accept; tcp dport @ports counter; }
	chain forward { type filter hook forward priority 0; policy accept; ct state established,related accept; }
	chain prerouting { type nat hook prerouting priority -90; policy accept; ip daddr 203.0.113.255 dnat to 10.128.0.2; }
}`

// startNeighbours starts the other activity on the node: pods come and go, a
// monitor listens to all changes of rules, a firewall is loaded again and
// again, and connections are listed.
func (s *soak) startNeighbours() {
	s.T.Helper()
	s.T.Cleanup(func() {
		if !s.ended() {
			close(s.stop)
		}
		s.running.Wait()
	})
	r := random{rand.New(rand.NewPCG(s.seed, 1<<33))}
	s.running.Go(func() { s.scaleServed(r) })
	monitor := exec.Command("nft", "monitor")
	if err := s.Node.Start(monitor); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		_ = monitor.Process.Kill()
		_ = monitor.Wait()
	})
	s.every(time.Second, func() error {
		_, err := s.nft(firewall)
		return err
	})
	s.every(2*time.Second, func() error {
		return s.Node.Do(func() error {
			for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
				// It is interrupted when there is much to list.
				_, _ = netlink.ConntrackTableList(netlink.ConntrackTable, family)
			}
			return nil
		})
	})
}

// every does something again and again until the end.
func (s *soak) every(pause time.Duration, f func() error) {
	s.running.Go(func() {
		for await.Pace(s.stop, pause) {
			if err := f(); err != nil {
				s.T.Errorf("a neighbour: %v", err)
			}
		}
	})
}
