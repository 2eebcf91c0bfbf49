package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// node has the parts between the source and the kernel, as the daemon
// puts them together: the agent with its applier, in a network namespace.
type node struct {
	conn    *kernel.Conn
	applier *apply.Applier
	agent   *agent.Agent
	next    *model.Update // what Load gives
	syncs   chan outcome
	commits outcome // sum of the sync under way
	read    bool    // the kernel's rules
	cancel  context.CancelFunc
	ended   chan error
}

// outcome is the result of one update.
type outcome struct {
	end          time.Time
	compared     bool // everything was compared
	changes      int
	transactions int
	bytes        int // on the wire, without message headers
	err          error
}

// newNode returns a node that has not begun. The record is the last node's; nil: it has left
// none.
func newNode(ns *netlab.Namespace, record *agent.Record) (*node, error) {
	n := &node{syncs: make(chan outcome, 1), ended: make(chan error, 1)}
	if err := ns.Do(func() (err error) { n.conn, err = kernel.Open(); return err }); err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	n.applier = apply.New(n.conn, log)
	n.applier.Observer = observer{node: n}
	n.agent = agent.New(agent.Config{
		Source:    n,
		Node:      config(),
		Applier:   n.applier,
		Resume:    record,
		Affinity:  n.conn,
		Observers: []func(*agent.Sync){n.observe},
		Log:       log,
	})
	return n, nil
}

// Await implements [agent.Source].
func (n *node) Await(context.Context) error { return nil }

// Load implements [agent.Source].
func (n *node) Load() (*model.Update, error) { return n.next, nil }

// start begins with an update from nothing. It returns the outcome and how long
// the update took.
func (n *node) start(all *model.Update) (outcome, time.Duration, error) {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.next = all
	begin := time.Now()
	go func() { n.ended <- n.agent.Run(ctx) }()
	return n.wait(begin)
}

// change brings an update to the node.
func (n *node) change(u *model.Update) (outcome, time.Duration, error) {
	n.next = u
	begin := time.Now()
	n.agent.Changed()
	return n.wait(begin)
}

func (n *node) wait(begin time.Time) (outcome, time.Duration, error) {
	select {
	case o := <-n.syncs:
		return o, o.end.Sub(begin), o.err
	case err := <-n.ended:
		n.ended <- err
		return outcome{}, 0, fmt.Errorf("the agent ended: %w", err)
	}
}

// observer follows the transactions of a node.
type observer struct {
	apply.Unobserved
	node *node
}

func (o observer) Compared(_, _ *nft.Ruleset) { o.node.read = true }

// Committed adds up the changes of the transactions of a sync. It does not keep their plans,
// because memory is measured.
func (o observer) Committed(c apply.Commit) {
	n := o.node
	n.commits.transactions++
	n.commits.changes += len(c.Plan.Changes)
	n.commits.bytes += c.Size.Bytes
	n.commits.err = errors.Join(n.commits.err, c.Err) // a commit that had to be repeated is measured wrongly
}

func (n *node) observe(s *agent.Sync) {
	o := n.commits
	o.end, o.compared, o.err = time.Now(), s.Compared, errors.Join(s.Err, o.err)
	n.commits = outcome{}
	n.syncs <- o
}

// end ends the agent. The rules stay.
func (n *node) end() error {
	if n.cancel == nil {
		return nil
	}
	n.cancel()
	n.cancel = nil
	return <-n.ended
}

func (n *node) stop() error { return errors.Join(n.end(), n.conn.Close()) }
