package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
)

// lab is a node with the rules of one row. Its last pod is the client, and the others
// are the servers.
type lab struct {
	*feature
	*netlab.Lab
	to      netip.AddrPort
	servers *listeners
	costs   []cost // one for each round
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
	// More than one address has ports for, if connection tracking keeps closed ones.
	if err := l.client().Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("1024 65535"), 0) }); err != nil {
		return l, err
	}
	pods := l.Pods[:endpoints]
	if l.servers, err = listen(pods, p.family); err != nil {
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
	l.to = f.target(p.family, p.services, node)
	_, err = l.servers.connect(l.client(), l.to, 1)
	return l, err
}

func (l *lab) client() *netlab.Host { return l.Pods[endpoints] }

func (l *lab) close() error {
	var err error
	if l.servers != nil {
		err = l.servers.close()
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
	cmd := exec.Command(p.nftproxy, append([]string{"apply", "--strict", "-q", "-f", file, "--hostname-override", l.Node.Name, "--cluster-cidr", cluster}, l.flags...)...)
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
