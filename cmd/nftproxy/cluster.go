package main

import (
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/source"
)

// newClient returns a client for the API server. It does not connect yet.
func newClient(cfg *config.Config, log *slog.Logger) (kubernetes.Interface, error) {
	c, err := access(cfg)
	if err != nil {
		return nil, err
	}
	from := cfg.Kube.ClientConnection
	c.QPS, c.Burst = from.QPS, int(from.Burst)
	c.ContentType, c.AcceptContentTypes = from.ContentType, from.AcceptContentTypes
	if c.AcceptContentTypes == "" && c.ContentType == runtime.ContentTypeProtobuf {
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	c.UserAgent = "nftproxy/" + version
	c.Wrap(source.EndSilence(source.DefaultSilence, log))
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("prepare client of the API server: %w", err)
	}
	return client, nil
}

// access returns where the API server is and how to authenticate.
func access(cfg *config.Config) (*rest.Config, error) {
	kubeconfig := cfg.Kube.ClientConnection.Kubeconfig
	if !cfg.NamesCluster() {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no API server: name a file with --kubeconfig; without it nftproxy must run in a pod, where KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are set")
		}
		if err != nil {
			return nil, fmt.Errorf("use the service account of the pod: %w: mount its token, or name a file with --kubeconfig", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: cfg.Master}}).ClientConfig()
	switch {
	case err == nil:
		return config, nil
	case kubeconfig == "":
		return nil, fmt.Errorf("--master: %w: write it like https://10.0.0.1:6443", err)
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("--kubeconfig: %s names no API server: set current-context to a context with a cluster, or give --master", kubeconfig)
	}
	return nil, fmt.Errorf("--kubeconfig: %w: name a file that kubectl can use", err)
}

// logLibrary sends what client-go says to log: its messages of verbosity n
// have the level -n.
func logLibrary(log *slog.Logger) { klog.SetSlogLogger(log.With("library", "client-go")) }
