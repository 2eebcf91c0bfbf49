package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// checkGeneration checks that the kernel has seen the measured transactions,
// and no others.
func (m *measurer) checkGeneration(first uint32) error {
	now, err := m.ns.Generation()
	if err == nil && int(now-first) != m.transactions {
		err = fmt.Errorf("the kernel counts %d transactions, %d were measured", now-first, m.transactions)
	}
	return err
}

// verify proves that the kernel has the rules that a fresh start with the same Services
// would give it. Lanes that are kept for later are beyond them; they are
// removed, and then nothing must be left to do.
func verify(ns *netlab.Namespace, w *world) (err error) {
	var conn *kernel.Conn
	if err := ns.Do(func() (err error) { conn, err = kernel.Open(); return err }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	applier := apply.New(conn, slog.New(slog.DiscardHandler))
	wanted := fresh(w)
	p, _, err := applier.Plan(wanted)
	if err != nil {
		return err
	}
	for _, c := range p.Changes {
		if c.Verb != plan.Delete || c.Kind() != "chain" || c.Chain.Hook != nft.NoHook {
			return fmt.Errorf("the kernel does not hold the wanted rules: %d changes would be made, such as: %s", len(p.Changes), c.Text())
		}
	}
	if _, err := applier.Apply(nft.FromNothing(wanted)); err != nil {
		return err
	}
	p, _, err = applier.Plan(wanted)
	if err == nil && !p.Empty() {
		err = fmt.Errorf("the kernel does not hold the rules just applied: %d changes", len(p.Changes))
	}
	return err
}

// fresh renders the Services from nothing.
func fresh(w *world) *nft.Ruleset {
	u := w.snapshot()
	router := model.NewRouter()
	router.Configure(config(), u.Nodes, u.ServiceCIDRs)
	router.SetServices(u.Services)
	return render.Render(router.Routing())
}
