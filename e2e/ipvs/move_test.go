package ipvs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/e2e/ipvs/report"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Names that the check of the results knows.
const (
	takeOver = "nftproxy starts and takes over"
	cleanUp  = "nftproxy cleanup"
	openUDP  = "UDP sockets in use"
	ownOpen  = "open TCP connections of the node itself"
	ownNew   = "new TCP connections of the node itself"
)

// inside moves the node from each scheduler of IPVS to nftproxy and back.
func inside() error {
	n, err := newNode()
	if err != nil {
		return err
	}
	var r report.Results
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	r.Kernel = unix.ByteSliceToString(name.Release[:])
	for _, s := range n.Schedulers {
		phases, err := n.move(s)
		if err != nil {
			return fmt.Errorf("scheduler %s: %w", s, err)
		}
		r.Moves = append(r.Moves, report.Move{Scheduler: s, Phases: phases})
	}
	return answer(r)
}

// move moves the node to nftproxy and back, and returns what clients saw.
func (n *node) move(scheduler string) ([]report.Phase, error) {
	if err := errors.Join(n.configure(scheduler), n.startKubeProxy(), n.settled(scheduler)); err != nil {
		return nil, err
	}
	if err := n.wait("serve the Services", n.answers); err != nil {
		return nil, err
	}
	there, err := n.load()
	if err != nil {
		return nil, err
	}
	l := startLoad(there...)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"kube-proxy serves", func() error { return nil }},
		{"kube-proxy is stopped", n.stop},
		{takeOver, n.startNFTProxy},
		{"nftproxy serves", func() error { return n.replaced(scheduler) }},
	} {
		if err := l.phase(step.name, step.do); err != nil {
			return nil, err
		}
	}
	phases := l.end()
	back, err := n.load()
	if err != nil {
		return nil, err
	}
	l = startLoad(back...)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"nftproxy is stopped, kube-proxy starts", func() error { return errors.Join(n.stop(), n.startKubeProxy()) }},
		{cleanUp, func() error { return n.script(nftproxyFile + " cleanup") }},
		{"kube-proxy serves again", func() error { return n.settled(scheduler) }},
	} {
		if err := l.phase(step.name, step.do); err != nil {
			return nil, err
		}
	}
	return append(phases, l.end()...), n.stop()
}

// answers checks that every target answers.
func (n *node) answers() error {
	for _, t := range slices.Concat(n.frontends("tcp"), n.frontends("udp"), n.affine(), n.clusterIPs(n.Node, "tcp")) {
		if _, err := t.from.Ask(t.network, t.to, time.Second); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return nil
}

// affine returns where the Service with session affinity is dialled.
func (n *node) affine() (all []target) {
	for _, f := range model.Families {
		all = append(all, target{n.Client, "tcp", n.Sticky.Frontend(f)})
	}
	return all
}

// load opens connections and returns the clients.
func (n *node) load() ([]*client, error) {
	outside, fromNode := n.frontends("tcp"), n.clusterIPs(n.Node, "tcp")
	var kinds []*client
	for _, k := range []struct {
		name    string
		targets []target
	}{
		{"open TCP connections", slices.Concat(outside, n.clusterIPs(n.Pods[0], "tcp"))},
		{openUDP, slices.Concat(n.frontends("udp"), n.clusterIPs(n.Pods[0], "udp"))},
		{ownOpen, fromNode},
	} {
		flows, err := open(k.targets)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kept(k.name, flows))
	}
	return append(kinds, fresh("new TCP connections", slices.Concat(outside, n.clusterIPs(n.Pods[1], "tcp"))),
		fresh("new UDP sockets", n.frontends("udp")), fresh(ownNew, fromNode),
		sticky("new TCP connections with session affinity", n.affine()),
		fresh("new connections to a foreign virtual server", []target{{n.Client, "tcp", foreign}})), nil
}
