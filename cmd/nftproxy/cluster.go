package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// clusterOptions are the flags about the Kubernetes API server. They have the
// names and defaults of kube-proxy's.
type clusterOptions struct {
	kubeconfig  string
	master      string
	qps         float32
	burst       int32
	contentType string
	// minSyncPeriod is the least time between changes of the rules.
	minSyncPeriod time.Duration
}

func (o *clusterOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that says where the API server is and how to authenticate (default: the service account of the pod)")
	f.StringVar(&o.master, "master", "", "`URL` of the API server, in place of the one in the kubeconfig")
	f.Float32Var(&o.qps, "kube-api-qps", 5, "`number` of requests a second to the API server")
	f.Int32Var(&o.burst, "kube-api-burst", 10, "`number` of requests to the API server that may come at once")
	f.StringVar(&o.contentType, "kube-api-content-type", runtime.ContentTypeProtobuf, "content `type` of requests to the API server")
	_ = c.MarkFlagFilename("kubeconfig") // fails only for an unknown flag
}

// client returns a client for the API server. It does not connect yet.
func (o *clusterOptions) client() (kubernetes.Interface, error) {
	if o.burst < 0 {
		return nil, fmt.Errorf("--kube-api-burst: %d is negative: use 0 or more", o.burst)
	}
	config, err := o.rest()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = o.qps, int(o.burst)
	config.ContentType = o.contentType
	if o.contentType == runtime.ContentTypeProtobuf {
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	config.UserAgent = "nftproxy/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare client of the API server: %w", err)
	}
	return client, nil
}

// rest returns where the API server is and how to authenticate.
func (o *clusterOptions) rest() (*rest.Config, error) {
	if o.kubeconfig == "" && o.master == "" {
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
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: o.master}}).ClientConfig()
	switch {
	case err == nil:
		return config, nil
	case o.kubeconfig == "":
		return nil, fmt.Errorf("--master: %w: write it like https://10.0.0.1:6443", err)
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("--kubeconfig: %s names no API server: set current-context to a context with a cluster, or give --master", o.kubeconfig)
	}
	return nil, fmt.Errorf("--kubeconfig: %w: name a file that kubectl can use", err)
}

// logLibrary sends what client-go says to log: its messages of verbosity n
// have the level -n.
func logLibrary(log *slog.Logger) { klog.SetSlogLogger(log.With("library", "client-go")) }
