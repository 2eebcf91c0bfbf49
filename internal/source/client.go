package source

import (
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	componentconfig "k8s.io/component-base/config/v1alpha1"
)

// Access says where an API server is and how to talk to it.
type Access struct {
	componentconfig.ClientConnectionConfiguration
	// Master is the URL of the API server, in place of the one in the
	// kubeconfig. Without both this is a pod.
	Master    string
	UserAgent string
}

// Client returns a client. It does not connect yet.
func (a Access) Client(log *slog.Logger) (kubernetes.Interface, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	c.QPS, c.Burst = a.QPS, int(a.Burst)
	c.ContentType, c.AcceptContentTypes = a.ContentType, a.AcceptContentTypes
	if c.AcceptContentTypes == "" && c.ContentType == runtime.ContentTypeProtobuf {
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	c.UserAgent = a.UserAgent
	c.Wrap(endSilence(maxSilence, log))
	c.Wrap(resumeWatches)
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("prepare client of the API server: %w", err)
	}
	return client, nil
}

// Check returns an error if there can be no client.
func (a Access) Check() error {
	_, err := a.config()
	return err
}

func (a Access) config() (*rest.Config, error) {
	if a.Kubeconfig == "" && a.Master == "" {
		return podConfig()
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: a.Kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: a.Master}}).ClientConfig()
	switch {
	case err == nil:
		return config, nil
	case a.Kubeconfig == "":
		return nil, fmt.Errorf("--master: %w: write it like https://10.0.0.1:6443", err)
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("--kubeconfig: %s names no API server: set current-context to a context with a cluster, or give --master", a.Kubeconfig)
	}
	return nil, fmt.Errorf("--kubeconfig: %w: name a file that kubectl can use", err)
}

func podConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("no API server: name a file with --kubeconfig; without it nftproxy must run in a pod, where KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are set")
	case err != nil:
		return nil, fmt.Errorf("use the service account of the pod: %w: mount its token, or name a file with --kubeconfig", err)
	}
	return config, nil
}
