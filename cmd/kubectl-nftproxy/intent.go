package main

import (
	"k8s.io/klog/v2"

	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/feature/table/editors"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
)

// intents computes here what the objects of the API server mean for nodes, with the settings of
// the nftproxy on each. The objects that all nodes share are read once.
type intents struct {
	fleet  *fleet.Fleet
	shared map[string]*model.Snapshot // by what decides over their conversion
}

func newIntents(f *fleet.Fleet) *intents {
	return &intents{fleet: f, shared: make(map[string]*model.Snapshot)}
}

// forget makes the next intent read all objects again.
func (i *intents) forget() { clear(i.shared) }

// of returns what the objects mean for a node with a configuration.
func (i *intents) of(ctx context.Context, cfg *config.Config, b *api.Basis) (side changes.Side, err error) {
	snapshot, err := i.snapshot(ctx, cfg)
	if err != nil {
		return side, err
	}
	known := common.KnownOf(b)
	if known.Drained, err = drain.ListOf(b.Drained); err != nil {
		return side, fmt.Errorf("read the drained endpoints of node %s: %w", cfg.Node.NodeName, err)
	}
	if side.Snapshot, _, err = editors.Plan(snapshot, &known); err != nil {
		return side, err
	}
	side.Routing = model.Resolve(side.Snapshot, cfg.Node)
	return side, nil
}

// configOf returns the configuration of the nftproxy on a node, as far as rules depend on it.
func configOf(node string, b *api.Basis) (*config.Config, error) {
	switch {
	case b.Version != api.BasisVersion:
		return nil, fmt.Errorf("the answer of node %s has version %d, which this version does not understand", node, b.Version)
	case b.Files:
		return nil, fmt.Errorf("nftproxy on node %s also reads files, which are not known here: compare on the node, with nftproxy diff", node)
	}
	set := pflag.NewFlagSet(node, pflag.ContinueOnError)
	flags := config.NewFlags(set)
	flags.AddRules()
	flags.AddCounters("", "")
	flags.AddHealthChecks("")
	_, unknown, err := flags.Follow(b.Settings)
	if err == nil && len(unknown) > 0 {
		err = errors.New("this version does not know " + strings.Join(unknown, " "))
	}
	var cfg *config.Config
	if err == nil {
		cfg, err = flags.Load()
	}
	if err != nil {
		return nil, fmt.Errorf("follow the settings of node %s: %w", node, err)
	}
	common.FollowBasis(&cfg.Node, b)
	cfg.Node.InterfaceAddresses, cfg.Node.Links = b.InterfaceAddresses, b.Links
	return cfg, nil
}

// snapshot returns the objects as a node sees them.
func (i *intents) snapshot(ctx context.Context, cfg *config.Config) (*model.Snapshot, error) {
	c, err := i.cluster(cfg)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%t %s", cfg.Own.HealthChecks, cfg.Own.ServiceProxyName)
	shared := i.shared[key]
	if shared == nil {
		if i.shared[key], err = c.Read(ctx); err != nil {
			return nil, err
		}
		return i.shared[key], nil
	}
	node, err := c.ReadNode(ctx)
	if err != nil {
		return nil, err
	}
	own := *shared
	own.Nodes = nil
	if node != nil {
		own.Nodes = []*model.Node{node}
	}
	return &own, nil
}

func (i *intents) cluster(cfg *config.Config) (*cluster.Cluster, error) {
	access, err := i.fleet.Config()
	if err != nil {
		return nil, err
	}
	access.QPS = -1
	client, err := cluster.ClientOf(access, cfg.Own.HealthChecks)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	klog.SetSlogLogger(log) // of client-go
	return cluster.New(client, cluster.Config{NodeConfig: cfg.Node, ProxyName: cfg.Own.ServiceProxyName, HealthChecks: cfg.Own.HealthChecks, Log: log}), nil
}
