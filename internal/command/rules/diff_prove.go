package rules

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/prove"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/report"
)

// kubeProxyTable is the name of kube-proxy's tables.
const kubeProxyTable = "kube-proxy"

func (o *diffOptions) prove(c *cobra.Command) error {
	compared, err := o.comparePackets(c)
	if err != nil {
		return o.hint(err)
	}
	if len(compared.Foreign) > 0 {
		return fmt.Errorf("rules of other programs are not understood: %s", strings.Join(compared.Foreign, "; "))
	}
	out := bufio.NewWriter(c.OutOrStdout())
	text := compared.Text
	if o.output.Format == formatMarkdown {
		text = compared.Markdown
	}
	if err = errors.Join(o.output.Print(out, cli.JSONFunc(compared.JSON), text), out.Flush()); err != nil {
		return err
	}
	switch {
	case !compared.Explained():
		return cli.ErrUnexplained
	case compared.Packets > 0:
		return cli.ErrNo
	}
	return nil
}

func (o *diffOptions) comparePackets(c *cobra.Command) (*prove.Comparison, error) {
	if len(o.from) > 0 {
		sides, cfg, err := o.readInputs(c)
		if err != nil {
			return nil, err
		}
		return o.provePlan(c, cfg, sides)
	}
	cfg, log, err := o.Configure(c, true)
	if err != nil {
		return nil, err
	}
	side, err := o.ResolveHere(c, cfg, log)
	if err != nil {
		return nil, err
	}
	var out *prove.Comparison
	return out, command.WithKernel(func(conn *kernel.Conn) (err error) {
		conn.Log = log
		out, err = o.proveKernel(c, cfg, log, conn, side)
		return err
	})
}

// provePlan compares the rules for two inputs, and those to which the plan leads.
func (o *diffOptions) provePlan(c *cobra.Command, cfg *config.Config, sides [2]changes.Side) (*prove.Comparison, error) {
	was, wanted := render.Render(sides[0].Routing), render.Render(sides[1].Routing)
	r := prove.Rulesets{Now: &bytecode.Ruleset{}, Wanted: &bytecode.Ruleset{}}
	if err := errors.Join(codec.CarryOut(plan.Diff(&nft.Ruleset{}, was), r.Now, nil), codec.CarryOut(plan.Diff(&nft.Ruleset{}, wanted), r.Wanted, nil)); err != nil {
		return nil, err
	}
	r.Planned = r.Now.Clone()
	if err := codec.CarryOut(plan.Diff(was, plan.Settle(was, wanted)), r.Planned, nil); err != nil {
		return nil, err
	}
	o.ShowPhase(c, "following packets of %d frontends", len(sides[1].Routing.Routes))
	return prove.Compare(r, prove.NewWorld(sides[0].Snapshot, cfg.Node), prove.NewWorld(sides[1].Snapshot, cfg.Node)), nil
}

// proveKernel compares the rules of all programs in the kernel with those for an input. The tables of
// the process itself, which no plan has, stay as they are. Those of kube-proxy go, as "run" removes
// them.
func (o *diffOptions) proveKernel(c *cobra.Command, cfg *config.Config, log *slog.Logger, conn *kernel.Conn, side changes.Side) (*prove.Comparison, error) {
	now, err := conn.ReadAll()
	if err != nil {
		return nil, err
	}
	p, _, err := report.Compare(conn, log, side.Routing, o.Running.Stays, side.Snapshot)
	if err != nil {
		return nil, err
	}
	r := prove.Rulesets{Now: now, Planned: now.Clone(), Wanted: now.Only(nft.RelayTable, fastpath.TableName), Foreign: []string{kubeProxyTable}}
	if cfg.Own.TakeOver {
		r.Planned = now.Without(kubeProxyTable)
	}
	if err := errors.Join(codec.CarryOut(p, r.Planned, nil), codec.CarryOut(plan.Diff(&nft.Ruleset{}, render.Render(side.Routing)), r.Wanted, nil)); err != nil {
		return nil, err
	}
	o.ShowPhase(c, "following packets of %d frontends", len(side.Routing.Routes))
	w := prove.NewWorld(side.Snapshot, cfg.Node)
	for _, f := range model.Families {
		if now.Has(codec.FamilyNumber(f), nft.RelayTable) {
			w.Relay(f)
		}
	}
	return prove.Compare(r, w), nil
}
