package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/fleet/peers"
	"github.com/nftproxy/nftproxy/internal/kubectl"
)

type fleetTestOptions struct {
	fleetOptions
	peers.Options
	service string // that is tested; empty: Services of the test itself
	noHost  bool
	outside bool
	batch   int
	wait    time.Duration
}

const (
	defaultBatch = 10
	// maxBatch is for how many endpoints a client opens so many connections that it meets each.
	maxBatch = 20
	// dialLimit is how long the cases of a client can take.
	dialLimit = 5 * time.Minute
	peerPort  = 10299
)

func testCommand(a access) *cobra.Command {
	var o fleetTestOptions
	c := &cobra.Command{
		Use:   "test [NAMESPACE/NAME]",
		Short: "Connect to Services from every node, and compare with what explain predicts",
		Long: fmt.Sprintf(`Start pods on all nodes, or on chosen ones, and open real connections to Services of every
kind: ClusterIPs, NodePorts and load balancer addresses, over TCP and UDP, of each family,
with policies Cluster and Local, session affinity, source ranges, without endpoints, and to
the client itself. Each result is compared with what "kubectl nftproxy explain" predicts for
the node: which endpoint answers, with which client address, or why a connection is refused.

Connections come from a pod on the node, from the node itself and from another node, with
--outside also from this machine to the NodePorts. With the name of a Service, that one is
tested instead, and whether it answers; which endpoint has answered is not known then.

The pods run the image of nftproxy's DaemonSet, so that nodes need not pull another, or
--image. They have no privileges and listen on their own addresses. Pods for connections
from the node are in its network, and listen on port %d of localhost, with a password: the
namespace is for privileged pods then. --no-host leaves them out.

Nodes are tested in batches. Everything is in a namespace of its own, which is removed at
the end, also after SIGINT or SIGTERM. A later run removes what a killed one has left. On
nodes without nftproxy, its defaults or the settings of another node lead to the prediction.

This command writes objects: it needs more permissions than "kubectl nftproxy status".
docs/kubectl.md lists them.

Exit code: 0 all cases pass; 1 a case fails, or a node could not be tested; 2 error, or
interrupted.`, peerPort),
		Example: `  kubectl nftproxy test
  kubectl nftproxy test --nodes node-7,node-8
  kubectl nftproxy test shop/web -l zone=a
  kubectl nftproxy test -o junit > result.xml
  kubectl nftproxy test --image registry.example.com/nftproxy@sha256:...`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.service = a.qualify(strings.Join(args, ""))
			return o.run(c)
		},
	}
	o.fleetOptions.addFlags(c, a)
	f := c.Flags()
	f.StringSliceVar(&o.nodes, "nodes", nil, "`names` of the nodes (default: all)")
	f.IntVar(&o.batch, "batch", defaultBatch, fmt.Sprintf("`number` of nodes that are tested at the same time, up to %d", maxBatch))
	f.StringVar(&o.Image, "image", "", "`image` of the pods, which has nftproxy 0.2.0 or later (default: as the DaemonSet of nftproxy)")
	f.BoolVar(&o.noHost, "no-host", false, "start no pods in the network of nodes: no connections come from a node")
	f.BoolVar(&o.outside, "outside", false, "also connect from this machine to the NodePorts")
	f.DurationVar(&o.Patience, "start-timeout", 2*time.Minute, "`time` in which the pods of a batch have to start")
	f.DurationVar(&o.wait, "wait", conntest.Patience, "`time` to wait for an answer; for one that should not come, at most 1s")
	f.Uint16Var(&o.Control, "peer-port", peerPort, "`port` on localhost where the pods take requests")
	f.BoolVarP(&o.all, "all", "A", false, "list all cases, not only these that have failed")
	o.output.Add(c, "", cli.Text, cli.JSON, cli.YAML, common.JUnit)
	return c
}

func (o *fleetTestOptions) check() error {
	switch {
	case o.batch < 1 || o.batch > maxBatch:
		return fmt.Errorf("--batch: %d is not a number from 1 to %d", o.batch, maxBatch)
	case o.Patience <= 0:
		return fmt.Errorf("--start-timeout: %s is not positive", o.Patience)
	case o.wait <= 0:
		return fmt.Errorf("--wait: %s is not positive", o.wait)
	case o.Control == 0:
		return errors.New("--peer-port: 0 is not a port")
	}
	return nil
}

func (o *fleetTestOptions) run(c *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, stop := cli.EndAtSignal(c)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the command at once
	f, err := o.open()
	if err != nil {
		return err
	}
	t, err := o.begin(c, f)
	if err != nil {
		return err
	}
	report, err := t.test()
	if errors.Is(err, context.Canceled) && !errors.Is(err, kubectl.ErrNotRemoved) {
		return errors.New("interrupted: everything that the test made is removed")
	}
	if err != nil {
		return err
	}
	return common.PrintTest(c.OutOrStdout(), report, &o.output, o.all)
}

// begin lists the nodes, and what the pods run.
func (o *fleetTestOptions) begin(c *cobra.Command, f *fleet.Fleet) (*clusterTest, error) {
	t := &clusterTest{fleetTestOptions: o, c: c, fleet: f, intents: newIntents(f)}
	var err error
	if t.members, err = o.anyMembers(c, f); err != nil {
		return nil, err
	}
	for _, n := range t.members.nodes {
		if n.Labels["kubernetes.io/os"] == "windows" {
			t.notes = append(t.notes, "node "+n.Name+" runs Windows, and is not tested")
			continue
		}
		t.names = append(t.names, n.Name)
	}
	if len(t.names) == 0 {
		return nil, fmt.Errorf("there is no node to test%s", o.selected())
	}
	if o.Image == "" {
		if o.Image, err = f.Image(c.Context()); err != nil {
			return nil, err
		}
	}
	batches := (len(t.names) + o.batch - 1) / o.batch
	o.Limit = time.Duration(batches) * (3*o.Patience + dialLimit)
	o.Host, o.Services = !o.noHost, o.service == ""
	return t, nil
}
