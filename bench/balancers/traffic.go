package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Clients at the same time, by kind of load.
var clients = map[string]int{connectLoad: 32, requestLoad: 64, bulkLoad: 4}

// traffic measures three kinds of load.
func (p *plan) traffic(k *book, b balancer, dir string) (err error) {
	r, err := newRoom(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	s := few(r, 3, false)
	if _, err := b.start(r, s); err != nil {
		return err
	}
	targets := map[string][]netip.AddrPort{connectLoad: {s.services[0].to}, requestLoad: {s.services[0].to}, bulkLoad: {s.services[1].to}}
	if b == (direct{}) {
		targets = map[string][]netip.AddrPort{connectLoad: s.services[0].endpoints, requestLoad: s.services[0].endpoints, bulkLoad: s.services[1].endpoints}
	}
	for _, to := range []netip.AddrPort{targets[connectLoad][0], targets[bulkLoad][0]} {
		if err := r.awaitServed(to); err != nil {
			return err
		}
	}
	for _, kind := range []string{connectLoad, requestLoad, bulkLoad} {
		o, used, err := r.load(kind, targets[kind], p.span)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		k.traffic(b, kind, o, used)
	}
	return nil
}

// awaitServed waits until clients can connect.
func (r *room) awaitServed(to netip.AddrPort) error {
	return eventually(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := r.Client.DialContext(ctx, "tcp", to.String())
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// load loads a balancer. It returns also the processor time that was used.
func (r *room) load(kind string, to []netip.AddrPort, span time.Duration) (*outcome, time.Duration, error) {
	var targets []string
	for _, t := range to {
		targets = append(targets, t.String())
	}
	c, err := r.spawn(r.Client, "load", "-kind", kind, "-to", strings.Join(targets, ","), "-span", span.String(), "-warm", (span / 4).String(),
		"-clients", fmt.Sprint(clients[kind]))
	if err != nil {
		return nil, 0, err
	}
	if err := c.expect("begin"); err != nil {
		return nil, 0, err
	}
	before, err := r.processorTime()
	if err != nil {
		return nil, 0, err
	}
	o := &outcome{}
	if err := c.result(o); err != nil {
		return nil, 0, err
	}
	after, err := r.processorTime()
	if err != nil {
		return nil, 0, err
	}
	if o.Failed > 0 {
		return nil, 0, fmt.Errorf("%d of %d requests failed", o.Failed, o.Requests+o.Failed)
	}
	if o.Requests == 0 && o.Bytes == 0 {
		return nil, 0, errors.New("no client was served")
	}
	return o, after - before, c.end()
}
