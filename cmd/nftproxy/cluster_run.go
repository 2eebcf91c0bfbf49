package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/daemon"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
)

const (
	// rangePatience is how long the ServiceCIDRs are waited for: nobody has to
	// permit that they are read (14.3).
	rangePatience = 2 * time.Second
	// answerPatience is how long a command that reads a cluster once waits.
	answerPatience = 30 * time.Second
)

func newCluster(cfg *config.Config, log *slog.Logger) (*source.Cluster, error) {
	client, err := newClient(cfg, log)
	if err != nil {
		return nil, err
	}
	logLibrary(log)
	return source.NewCluster(client, source.ClusterConfig{NodeName: cfg.Node.NodeName, ProxyName: cfg.Own.ServiceProxyName, Log: log}), nil
}

// followCluster returns the objects of an API server.
func followCluster(cfg *config.Config, log *slog.Logger) (daemon.Source, error) {
	cluster, err := newCluster(cfg, log)
	if err != nil {
		return daemon.Source{}, err
	}
	// Events have a client of their own: the limit of requests counts for each.
	recording, err := newClient(cfg, log)
	if err != nil {
		return daemon.Source{}, err
	}
	return daemon.Source{
		Name: "API server",
		Watch: func(ctx context.Context, changed func()) error {
			cluster.Run(ctx, changed)
			return nil
		},
		AwaitNode: func(ctx context.Context) error {
			if err := cluster.WaitNode(ctx); err != nil {
				return err
			}
			return awaitNode(ctx, cluster.Node, cfg.Node, log)
		},
		Await:  func(ctx context.Context) error { return awaitServices(ctx, cluster, log) },
		Load:   cluster.Load,
		Node:   cluster.Node,
		Counts: cluster.Counts,
		Events: recording.EventsV1(),
	}, nil
}

// awaitServices returns when the cluster is known as far as the first rules
// depend on it: otherwise a restart would take rules away and bring them back.
// Without Services and EndpointSlices there is nothing to do (13.1); the
// ServiceCIDRs are waited for, but not for ever.
func awaitServices(ctx context.Context, c *source.Cluster, log *slog.Logger) error {
	if err := c.WaitSynced(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, rangePatience)
	defer cancel()
	if err := c.WaitServiceCIDRs(limited); err != nil && ctx.Err() == nil {
		log.Error("starting without an answer of the API server", "about", "ServiceCIDRs", "error", err)
	}
	return ctx.Err()
}

// readCluster returns what the API server says at this moment.
func readCluster(ctx context.Context, cfg *config.Config, log *slog.Logger) (*model.Snapshot, error) {
	cluster, err := newCluster(cfg, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { cluster.Run(ctx, func() {}) })
	for _, wait := range []func(context.Context) error{
		cluster.WaitNode,
		func(ctx context.Context) error { return awaitServices(ctx, cluster, log) },
	} {
		if err := wait(ctx); err != nil {
			return nil, fmt.Errorf("read cluster: %w: nothing complete came in %v, the log says why", err, answerPatience)
		}
	}
	return cluster.Snapshot()
}
