package main

import (
	"log/slog"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/source"
)

// access returns where the API server is.
func access(cfg *config.Config) source.Access {
	return source.Access{ClientConnectionConfiguration: cfg.Kube.ClientConnection, Master: cfg.Master, UserAgent: "nftproxy/" + version}
}

// openCluster returns the objects of an API server.
func openCluster(cfg *config.Config, log *slog.Logger) (*source.Cluster, error) {
	client, err := access(cfg).Client(log)
	if err != nil {
		return nil, err
	}
	// Messages of client-go of verbosity n have the level -n.
	klog.SetSlogLogger(log.With("library", "client-go"))
	return source.NewCluster(client, source.ClusterConfig{NodeConfig: cfg.Node, ProxyName: cfg.Own.ServiceProxyName, Log: log}), nil
}
