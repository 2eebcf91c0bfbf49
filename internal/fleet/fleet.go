package fleet

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// Defaults of [Options].
const (
	DefaultPods     = "k8s-app=nftproxy" // as the manifests have it
	DefaultPort     = 10249
	DefaultParallel = 32
	DefaultTimeout  = 5 * time.Second
)

// Ways to an agent.
const (
	// PortForward reaches a loopback address of the node. It needs the permission to create
	// pods/portforward.
	PortForward = "port-forward"
	// Proxy reaches the address of the node, on which the metrics server then has to listen.
	// It needs the permission to get pods/proxy.
	Proxy = "proxy"
)

// Ways are all ways to an agent.
var Ways = []string{PortForward, Proxy}

// Options say where the agents are, and how they are asked.
type Options struct {
	kubectl.Cluster
	Namespace string // of their pods; empty: all
	Pods      string // a selector of their labels
	Port      uint16 // of the metrics server
	Way       string
	Parallel  int           // most agents that are asked at the same time
	Timeout   time.Duration // until an agent has to answer; more for large documents
}

// Transport is a way to agents.
type Transport interface {
	// To returns what carries requests to an agent, with any name as host.
	To(*Agent) (http.RoundTripper, error)
}

// Fleet reaches the agents of a cluster. It is safe for concurrent use.
type Fleet struct {
	Options
	API       rest.Interface
	Transport Transport
}

// Open returns the fleet of the cluster that the options name. It does not connect yet.
func Open(o Options) (*Fleet, error) {
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // requests are as many as there are nodes, and bounded by Parallel
	f := &Fleet{Options: o}
	if f.API, err = kubectl.REST(rest.CopyConfig(config)); err != nil {
		return nil, err
	}
	config.Timeout = 0 // it is of requests to the API server
	if o.Way == PortForward {
		f.Transport = &forwarder{config: config, api: f.API, port: o.Port}
		return f, nil
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare client of the API server: %w", err)
	}
	f.Transport = proxied{RoundTripper: transport, api: f.API, port: o.Port}
	return f, nil
}
