// Package kubectl asks an API server with the access of the operator who runs a command.
package kubectl

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Access finds an API server as kubectl does: by the file, else by the environment
// variable KUBECONFIG, else by ~/.kube/config, else by the service account of a pod.
type Access struct{ Kubeconfig, Context, UserAgent string }

// REST returns a client for absolute paths. It does not connect yet.
func (a Access) REST() (rest.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.Context}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no API server: name a file with --kubeconfig, or set KUBECONFIG")
	case err != nil:
		return nil, fmt.Errorf("find API server: %w", err)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned) // errors
	config.UserAgent, config.GroupVersion = a.UserAgent, &schema.GroupVersion{}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare client of the API server: %w", err)
	}
	return api, nil
}

// Answer reads the answer to a request, or the error that the API server gives.
func Answer(r rest.Result, into any) error {
	if err := r.Error(); err != nil {
		return err
	}
	body, err := r.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}
