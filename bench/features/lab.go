package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/flow"
	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// lab is a node with the rules of one row. Its last pod is the client, and the others
// are the servers.
type lab struct {
	*feature
	*netlab.Lab
	to      netip.AddrPort
	servers *flow.Servers
	daemon  *exec.Cmd     // nil: nftproxy has only written the rules
	idle    time.Duration // its processor time while nothing happens, for as long as it is waited for
	reader  *nflog.Reader // nil: the program reads nothing
	costs   []flow.Cost   // one for each round
}

// newLab makes a laboratory, and connects once.
func (p *plan) newLab(f *feature) (l *lab, err error) {
	l = &lab{feature: f}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", f.name, err), l.close())
		}
	}()
	if l.Lab, err = netlab.New(endpoints + 1); err != nil {
		return l, err
	}
	if err := flow.AllPorts(l.client()); err != nil {
		return l, err
	}
	pods := l.Pods[:endpoints]
	if l.servers, err = flow.Listen(model.TCP, pods, p.family, serverPort); err != nil {
		return l, err
	}
	var addresses []netip.Addr
	for _, h := range pods {
		addresses = append(addresses, h.Address(p.family))
	}
	node := l.Node.Address(p.family)
	if err := p.apply(l, f.objects(p.family, p.services, node, addresses)); err != nil {
		return l, err
	}
	if f.first {
		if err := l.forgetEnds(p.family); err != nil {
			return l, err
		}
	}
	l.servers.Ended = f.ended
	if err := l.read(); err != nil {
		return l, err
	}
	l.to = f.target(p.family, p.services, node)
	_, err = l.connect(1)
	for until := time.Now().Add(patience); err != nil && f.daemon && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond) // it is starting
		_, err = l.connect(1)
	}
	if err == nil && f.later > 0 {
		l.idle, err = l.idleTime()
	}
	return l, err
}

// forgetEnds removes the chains that all packets pass so that ends of connections are logged.
func (l *lab) forgetEnds(f model.Family) error {
	for _, chain := range []string{"ends-prerouting", "ends-output"} {
		if out, err := l.Node.Output("nft", "delete", "chain", nft.FamilyKeyword(f), nft.TableName, chain); err != nil {
			return fmt.Errorf("delete chain %s: %w\n%s", chain, err, out)
		}
	}
	return nil
}

// read begins to read what the rules log, if that is part of the row.
func (l *lab) read() error {
	if !l.logged {
		return nil
	}
	err := l.Node.Do(func() (err error) { l.reader, err = nflog.Open(model.DefaultObserveGroup); return err })
	if err != nil {
		return err
	}
	go func() {
		for l.reader.Read(func(*nflog.Event) {}) == nil { // until it is closed
		}
	}()
	return nil
}

// idleTime returns the processor time of nftproxy while nothing happens.
func (l *lab) idleTime() (time.Duration, error) {
	time.Sleep(l.later) // for the first connections
	before, err := l.daemonTime()
	if err != nil {
		return 0, err
	}
	time.Sleep(l.later)
	after, err := l.daemonTime()
	return after - before, err
}

// patience is how long the start of nftproxy may take.
const patience = 30 * time.Second

func (l *lab) client() *netlab.Host {
	if l.dial == ownNodePort || l.dial == localhost {
		return l.Node
	}
	return l.Pods[endpoints]
}

// connect makes a number of connections, and returns the mean cost of one.
func (l *lab) connect(n int) (flow.Cost, error) {
	before, err := l.daemonTime()
	if err != nil {
		return flow.Cost{}, err
	}
	c, err := l.servers.Open(l.client(), l.to, n)
	if err != nil {
		return c, err
	}
	time.Sleep(l.later)
	after, err := l.daemonTime()
	c.Processor += (after - before - l.idle) / time.Duration(n)
	return c, err
}

// daemonTime returns the processor time of nftproxy, if it has a part in connections.
func (l *lab) daemonTime() (time.Duration, error) {
	if l.daemon == nil {
		return 0, nil
	}
	return results.ProcessorTime(l.daemon.Process.Pid)
}

func (l *lab) close() error {
	var err error
	if l.reader != nil {
		err = l.reader.Close()
	}
	if l.daemon != nil {
		_ = l.daemon.Process.Kill()
		_ = l.daemon.Wait() // the error says that it was killed
	}
	if l.servers != nil {
		err = l.servers.Close()
	}
	if l.Lab != nil {
		err = errors.Join(err, l.Lab.Close())
	}
	return err
}

// apply has nftproxy write its rules on the node. It must not complain: a feature that it
// does not know would cost nothing.
func (p *plan) apply(l *lab, objects string) error {
	file := filepath.Join(p.dir, "services.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o644); err != nil {
		return err
	}
	cluster := netlab.ClusterCIDRv4.String() + "," + netlab.ClusterCIDRv6.String()
	args := append([]string{"-f", file, "--hostname-override", l.Node.Name, "--cluster-cidr", cluster}, l.flags...)
	if l.feature.daemon {
		l.daemon = exec.Command(p.nftproxy, append([]string{"run", "--metrics-bind-address="}, args...)...)
		return l.Node.Start(l.daemon)
	}
	cmd := exec.Command(p.nftproxy, append([]string{"apply", "--strict", "-q"}, args...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := l.Node.Run(cmd); err != nil || out.Len() > 0 {
		return fmt.Errorf("nftproxy: %w\n%s", err, out.String())
	}
	return nil
}

// parseFamily returns the family of a name.
func parseFamily(name string) (model.Family, error) {
	for _, f := range model.Families {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("no family %q: use IPv4 or IPv6", name)
}
