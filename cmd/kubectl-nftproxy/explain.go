package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/model"
)

type fleetExplainOptions struct {
	fleetOptions
	common.Asked
	client string
}

func explainCommand(a access) *cobra.Command {
	var o fleetExplainOptions
	c := &cobra.Command{
		Use:   "explain [PROTO] ADDR:PORT | [PROTO] NAMESPACE/NAME[:PORT]",
		Short: "Explain where a connection of a pod goes, on the node of the pod",
		Long: `Trace the first packet of a connection of a pod, or of a node itself, through the rules
that the objects of the API server lead to on its node, as "nftproxy explain" does with
--kubeconfig: with the settings of the nftproxy there, its failing health checks and its
drained endpoints. "kubectl nftproxy diff" says whether the kernel has these rules.

Exit code: 0 the connection was traced, whatever the result; 2 error.`,
		Example: `  kubectl nftproxy explain shop/web --from pod/shop/cart-1
  kubectl nftproxy explain tcp 192.168.7.1:30080 --from node/node-7 --brief`,
		Args: common.ExplainArguments,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	o.addFlags(c, a)
	f := c.Flags()
	f.StringVar(&o.client, "from", "", "`client`: pod/NAMESPACE/NAME or node/NAME")
	o.Asked.AddFlags(f)
	o.output.Add(c, "")
	return c
}

func (o *fleetExplainOptions) run(c *cobra.Command, args []string) error {
	protocol, target := common.SplitQuestion(args)
	detail, err := o.Detail()
	if o.client == "" {
		err = errors.Join(err, errors.New("--from: name the client, for example pod/shop/cart-1"))
	}
	if err != nil {
		return err
	}
	f, err := o.open()
	if err != nil {
		return err
	}
	cli.ShowProgress(c, "reading the API server")
	result, err := o.trace(c, f, protocol, target)
	if err != nil {
		return err
	}
	return common.PrintTrace(c.OutOrStdout(), result, &o.output, detail)
}

func (o *fleetExplainOptions) trace(c *cobra.Command, f *fleet.Fleet, protocol, target string) (*explain.Result, error) {
	client, err := f.Find(c.Context(), o.client)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	agents, err := f.Agents(c.Context())
	if err != nil {
		return nil, err
	}
	agent := fleet.ReadyOn(agents, client.Node)
	if agent == nil {
		return nil, fmt.Errorf("no nftproxy is ready on node %s", client.Node)
	}
	basis := fleet.AskOne(c.Context(), f, *agent, askBasis)
	if basis.Err != nil {
		return nil, basis.Err
	}
	cfg, err := configOf(client.Node, basis.Document)
	if err != nil {
		return nil, err
	}
	side, err := newIntents(f).of(c.Context(), cfg, basis.Document)
	if err != nil {
		return nil, err
	}
	q, err := o.question(client, protocol, target)
	if err != nil {
		return nil, err
	}
	result, err := common.ExplainObjects(q, side.Snapshot, cfg.Node)
	if err == nil {
		result.Notes = append(result.Notes, "the rules are those that the objects lead to on node "+client.Node)
	}
	return result, err
}

// question returns the question with an address of the client, of the family that is asked about.
func (o *fleetExplainOptions) question(client *fleet.Client, protocol, target string) (common.Question, error) {
	family := model.IPv4
	if p, err := explain.Parse(protocol, target); err == nil {
		family = model.FamilyOf(p.Destination)
	} else if len(client.Addresses) > 0 && !client.Address(model.IPv4).IsValid() {
		family = model.IPv6
	}
	if len(client.Addresses) > 0 {
		a := client.Address(family)
		if !a.IsValid() {
			return common.Question{}, fmt.Errorf("--from: %s has no %s address", o.client, family)
		}
		o.From = a.String()
	}
	return o.Question(protocol, target)
}
