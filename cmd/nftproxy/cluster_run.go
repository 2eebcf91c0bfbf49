package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/spf13/cobra"
)

const (
	// defaultMinSyncPeriod keeps a rolling update from computing the rules for
	// each of its events.
	defaultMinSyncPeriod = 100 * time.Millisecond
	// nodePatience is how long the Node is waited for at the start (12.46).
	nodePatience = 30 * time.Second
	// rangePatience is how long the ServiceCIDRs are waited for: nobody has to
	// permit that they are read (14.3).
	rangePatience = 2 * time.Second
)

// usesCluster tells whether the objects come from an API server: one is named,
// or there are no files and this is a pod.
func (o *options) usesCluster() bool {
	return o.cluster.named() || len(o.files) == 0 && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

func (o *clusterOptions) named() bool { return o.kubeconfig != "" || o.master != "" }

// followCluster runs an agent that is told when the cluster changes.
func (o *options) followCluster(ctx context.Context, _ *cobra.Command, config agent.Config) error {
	if len(o.files) > 0 {
		return errors.New("-f and --kubeconfig exclude each other: objects come from files or from an API server")
	}
	client, err := o.cluster.client()
	if err != nil {
		return err
	}
	logLibrary(config.Log)
	cluster := source.NewCluster(client, source.ClusterConfig{NodeName: config.Node.NodeName, ProxyName: o.proxyName, Log: config.Log})
	config.Await = func(ctx context.Context) error { return awaitCluster(ctx, cluster, config.Log) }
	config.Load = cluster.Load
	config.MinSyncPeriod = o.cluster.minSyncPeriod
	err = follow(ctx, config, func(ctx context.Context, changed func()) error {
		cluster.Run(ctx, changed)
		return nil
	})
	if ctx.Err() != nil { // told to end while it waited
		return nil
	}
	return err
}

// awaitCluster returns when the cluster is known as far as the first rules
// depend on it: otherwise a restart would take rules away and bring them back.
// Without Services and EndpointSlices there is nothing to do (13.1); the Node
// and the ServiceCIDRs are waited for, but not for ever.
func awaitCluster(ctx context.Context, c *source.Cluster, log *slog.Logger) error {
	if err := c.WaitSynced(ctx); err != nil {
		return err
	}
	for _, w := range []struct {
		what     string
		patience time.Duration
		wait     func(context.Context) error
	}{
		{"Node", nodePatience, c.WaitNode},
		{"ServiceCIDRs", rangePatience, c.WaitServiceCIDRs},
	} {
		limited, cancel := context.WithTimeout(ctx, w.patience)
		if err := w.wait(limited); err != nil {
			log.Error("starting without an answer of the API server", "about", w.what, "error", err)
		}
		cancel()
	}
	return ctx.Err()
}
