package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/fleet"
)

// fleetOptions are the flags of all commands.
type fleetOptions struct {
	fleet.Options
	access access
	nodes  []string // names; none: all
	labels string   // of the nodes
	output cli.Output
	all    bool // no list is cut
}

func (o *fleetOptions) addFlags(c *cobra.Command, a access) {
	o.access, o.Cluster = a, a
	f := c.Flags()
	f.StringVarP(&o.labels, "selector", "l", "", "`labels` of the nodes, as for kubectl get nodes")
	f.StringVar(&o.Namespace, "agent-namespace", "", "`namespace` of the pods of nftproxy (default: all)")
	f.StringVar(&o.Pods, "agent-selector", fleet.DefaultPods, "`labels` of the pods of nftproxy")
	f.Uint16Var(&o.Port, "agent-port", fleet.DefaultPort, "`port` of their metrics server")
	f.StringVar(&o.Way, "via", fleet.PortForward, "`way` to the nodes: port-forward, or proxy, for which the metrics server must listen on the address of the node")
	f.IntVar(&o.Parallel, "parallel", fleet.DefaultParallel, "`number` of nodes that are asked at the same time")
	f.DurationVar(&o.Timeout, "timeout", fleet.DefaultTimeout, "`time` in which a node has to answer")
	declare.Values(f, "via", fleet.Ways...)
}

func (o *fleetOptions) open() (*fleet.Fleet, error) {
	switch {
	case o.Parallel < 1:
		return nil, fmt.Errorf("--parallel: %d is not a positive number", o.Parallel)
	case o.Timeout <= 0:
		return nil, fmt.Errorf("--timeout: %s is not positive", o.Timeout)
	case o.Port == 0:
		return nil, fmt.Errorf("--agent-port: 0 is not a port")
	case !slices.Contains(fleet.Ways, o.Way):
		return nil, fmt.Errorf("--via: unknown way %q: use %s", o.Way, strings.Join(fleet.Ways, " or "))
	}
	return fleet.Open(o.Options)
}

// reach returns the fleet, and the nodes that the flags select.
func (o *fleetOptions) reach(c *cobra.Command) (*fleet.Fleet, members, error) {
	f, err := o.open()
	if err != nil {
		return nil, members{}, err
	}
	m, err := o.members(c, f)
	return f, m, err
}

// members are the nodes that a command is about, and their agents.
type members struct {
	nodes  []fleet.Node // that exist
	agents []fleet.Agent
	all    bool // no node is left out
	found  int  // agents on all nodes
}

// members lists the nodes that the flags select, and their agents, of which there must be one.
func (o *fleetOptions) members(c *cobra.Command, f *fleet.Fleet) (m members, err error) {
	if m, err = o.anyMembers(c, f); err == nil && m.found == 0 {
		err = fmt.Errorf("no pod of nftproxy has the labels %s%s: name others with --agent-selector and --agent-namespace", o.Pods, phrase(" in the namespace ", o.Namespace))
	}
	return m, err
}

// anyMembers lists the nodes that the flags select, and their agents.
func (o *fleetOptions) anyMembers(c *cobra.Command, f *fleet.Fleet) (m members, err error) {
	cli.ShowProgress(c, "listing the nodes")
	m.all = o.labels == "" && len(o.nodes) == 0
	if m.nodes, err = f.Nodes(c.Context(), o.labels, o.nodes); err != nil {
		return m, err
	}
	for _, name := range o.nodes {
		if !fleet.Known(m.nodes, name) {
			return m, fmt.Errorf("there is no node %q%s", name, o.selected())
		}
	}
	if m.agents, err = f.Agents(c.Context()); err != nil {
		return m, err
	}
	m.found = len(m.agents)
	if !m.all {
		m.agents = slices.DeleteFunc(m.agents, func(a fleet.Agent) bool { return !fleet.Known(m.nodes, a.Node) })
	}
	return m, nil
}

func (o *fleetOptions) selected() string { return phrase(" with the labels ", o.labels) }

// phrase returns a text behind words; empty: there is no text.
func phrase(words, text string) string {
	if text == "" {
		return ""
	}
	return words + text
}

// progress shows how many of n nodes have answered.
func progress(c *cobra.Command, n int) func(int) {
	return func(done int) { cli.ShowProgress(c, "%d of %d nodes have answered", done, n) }
}
