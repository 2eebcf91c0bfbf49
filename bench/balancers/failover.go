package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

const (
	// settled is how long all servers have been healthy before one fails.
	settled = 4 * time.Second
	// observed is how long requests are observed after that.
	observed = 8 * time.Second
	// victim is the server that fails, one of three.
	victim = 1
)

// failures are the ways in which a server fails.
var failures = []struct {
	name string
	fail func(*room) error
}{
	{"refuses", func(r *room) error { r.servers[victim].kill(); return nil }},
	{"is silent", func(r *room) error {
		const hole = "table inet hole { chain input { type filter hook prerouting priority raw; policy drop; }; }"
		return r.run(r.Pods[victim], hole, "nft", "-f", "-")
	}},
}

// failover measures how many requests fail when one of three servers does, and
// until when.
func (p *plan) failover(k *book, b balancer, dir string) error {
	for _, f := range failures {
		if err := p.failoverOf(k, b, dir, f.name, f.fail); err != nil {
			return fmt.Errorf("server that %s: %w", f.name, err)
		}
	}
	return nil
}

func (p *plan) failoverOf(k *book, b balancer, dir, name string, fail func(*room) error) (err error) {
	r, err := newRoom(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	s := few(r, 3, true)
	s.services = s.services[:1]
	if _, err := b.start(r, s); err != nil {
		return err
	}
	to := s.services[0].to
	if err := r.awaitServed(to); err != nil {
		return err
	}
	c, err := r.spawn(r.Client, "pace", "-to", to.String(), "-rate", strconv.Itoa(p.pace))
	if err != nil {
		return err
	}
	time.Sleep(settled)
	began := time.Now()
	if err := fail(r); err != nil {
		return err
	}
	time.Sleep(observed)
	if err := c.in.Close(); err != nil {
		return err
	}
	var replies []reply
	if err := c.result(&replies); err != nil {
		return err
	}
	o, err := judge(replies, began)
	if err != nil {
		return err
	}
	k.failover(b, name, o)
	return nil
}

// losses is what a failure of a server costs.
type losses struct {
	requests, failed int
	// last is when the last request began that failed, after the failure.
	last   time.Duration
	errors map[string]int
	// failed by the end of each tenth of a second.
	curve []int
	// slowest is that of the requests that were answered.
	slowest time.Duration
}

// judge counts the requests that began after a failure. Those before it must have been
// answered, by all servers, unless they were under way.
func judge(replies []reply, failed time.Time) (*losses, error) {
	o := &losses{errors: map[string]int{}, curve: make([]int, observed/results.CurveStep)}
	answered := map[int]int{}
	for _, r := range replies {
		after := r.At.Sub(failed)
		took := time.Duration(r.Took * float64(time.Second))
		if after < 0 {
			if r.Error != "" && after+took < 0 {
				return nil, fmt.Errorf("a request failed before the server did: %s", r.Error)
			}
			if r.Error == "" {
				answered[r.Server]++
			}
			continue
		}
		o.requests++
		if r.Error == "" {
			o.slowest = max(o.slowest, took)
			continue
		}
		o.failed++
		o.errors[r.Error]++
		o.last = max(o.last, after)
		for i := int(after / results.CurveStep); i < len(o.curve); i++ {
			o.curve[i]++
		}
	}
	if len(answered) < 3 || o.requests == 0 {
		return nil, fmt.Errorf("servers have answered %v before the failure, and %d requests followed", answered, o.requests)
	}
	return o, nil
}
