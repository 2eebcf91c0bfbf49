package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"time"
)

// changesOfRun is how often each way to change a service is measured in one run.
const changesOfRun = 9

// rest is the pause between two changes, so that none waits for the minimum time
// between two syncs.
const rest = 200 * time.Millisecond

// manyServices measures start, memory and changes with one service and with many.
func (p *plan) manyServices(k *book, b balancer, dir string) error {
	for _, n := range []int{1, p.services} {
		if err := p.withServices(k, b, dir, n); err != nil {
			return fmt.Errorf("%d services: %w", n, err)
		}
	}
	return nil
}

func (p *plan) withServices(k *book, b balancer, dir string, n int) (err error) {
	r, err := newRoom(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	s := many(r, n)
	// The last service is served when all are.
	w, err := r.watch(s.services[n-1].to, -1)
	if err != nil {
		return err
	}
	before, err := kernelMemory()
	if err != nil {
		return err
	}
	at, err := b.start(r, s)
	if err != nil {
		return err
	}
	started, err := r.since(w)
	if err != nil {
		return err
	}
	after, err := kernelMemory()
	if err != nil {
		return err
	}
	var processes uint64
	for _, d := range at.daemons() {
		m, err := resident(d.cmd.Process.Pid)
		if err != nil {
			return err
		}
		processes += m
	}
	k.start(b, n, started, processes, int64(after)-int64(before))
	for _, w := range at.ways() {
		if err := r.change(k, b, w, s); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// change measures how long a replaced endpoint of the middle service takes until it
// answers.
func (r *room) change(k *book, b balancer, w way, s setting) error {
	n := len(s.services)
	middle := &s.services[n/2]
	for i := range changesOfRun {
		j := i % len(middle.endpoints)
		free := r.unused(middle.endpoints)
		watch, err := r.watch(middle.to, free)
		if err != nil {
			return err
		}
		old := middle.endpoints[j]
		middle.endpoints[j] = netip.AddrPortFrom(r.Pods[free].IPv4, old.Port())
		if err := w.replace(s, n/2, j, old); err != nil {
			return err
		}
		took, err := r.since(watch)
		if err != nil {
			return err
		}
		k.change(b, n, w.name, took)
		time.Sleep(rest)
	}
	return nil
}

// unused returns the number of the server that is none of some endpoints.
func (r *room) unused(endpoints []netip.AddrPort) int {
	used := map[netip.Addr]bool{}
	for _, e := range endpoints {
		used[e.Addr()] = true
	}
	for i, p := range r.Pods {
		if !used[p.IPv4] {
			return i
		}
	}
	return -1
}

// watch starts a process that waits for a server to answer.
func (r *room) watch(to netip.AddrPort, server int) (*child, error) {
	w, err := r.start(r.Client, exec.Command("/proc/self/exe", "watch", "-to", to.String(), "-want", strconv.Itoa(server)))
	if err != nil {
		return nil, err
	}
	return w, w.expect("begin")
}

// since returns how long after the last act a watch has seen the server.
func (r *room) since(w *child) (time.Duration, error) {
	stuck := time.AfterFunc(patience, func() { _ = w.cmd.Process.Kill() })
	defer stuck.Stop()
	var nanoseconds int64
	if err := w.result(&nanoseconds); err != nil {
		return 0, err
	}
	return time.Unix(0, nanoseconds).Sub(r.acted), w.end()
}
