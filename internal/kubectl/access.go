// Package kubectl asks an API server with the access of the operator who runs a command.
package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

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

// Config returns how to reach the API server. Callers may change it.
func (a Access) Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.Context}).ClientConfig()
	return Complete(config, err, a.Kubeconfig, a.UserAgent)
}

// Complete completes a configuration that was read, or says what the error means for the user of a command.
func Complete(config *rest.Config, err error, kubeconfig, userAgent string) (*rest.Config, error) {
	switch {
	case clientcmd.IsEmptyConfig(err) && kubeconfig != "":
		return nil, fmt.Errorf("--kubeconfig: %s names no API server: name a file that kubectl can use", kubeconfig)
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no API server: name a file with --kubeconfig, or set KUBECONFIG")
	case err != nil:
		return nil, fmt.Errorf("find API server: %w", err)
	}
	config.UserAgent = userAgent
	return config, nil
}

// Cluster is the way to an API server.
type Cluster interface {
	// Config returns how to reach it. Callers may change it.
	Config() (*rest.Config, error)
}

// REST returns a client for absolute paths. It does not connect yet.
func (a Access) REST() (rest.Interface, error) {
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	return REST(config)
}

// answerTimeout limits a request with its answer, which is an object or a page of a list. Without
// it, a server that accepts connections and is silent would hang a command.
const answerTimeout = 30 * time.Second

// REST returns a client for absolute paths of the API server of a configuration, which it
// completes. A request without an answer fails after 30 s, or the time of the configuration.
func REST(config *rest.Config) (rest.Interface, error) {
	config.Timeout = cmp.Or(config.Timeout, answerTimeout)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned) // errors
	config.GroupVersion = &schema.GroupVersion{}
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
		if os.IsTimeout(err) {
			err = fmt.Errorf("the API server does not answer: %w", err)
		}
		return err
	}
	body, err := r.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// Formats of answers.
const (
	// JSON has whole objects.
	JSON = runtime.ContentTypeJSON
	// Metadata has the names and labels of objects, without what they specify, which may
	// have secrets.
	Metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
)

const pageSize = "500"

// Query selects objects.
type Query struct {
	Path    string // for example "/api/v1/nodes"
	Format  string // empty: [JSON]
	Options map[string]string
}

// List calls each with the pages of a list. what names the objects in errors.
func List[T any](ctx context.Context, api rest.Interface, what string, q Query, each func([]T)) (metav1.ListMeta, error) {
	for next := ""; ; {
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if q.Format == "" {
			q.Format = JSON
		}
		r := api.Get().AbsPath(q.Path).SetHeader("Accept", q.Format).Param("limit", pageSize)
		for name, value := range q.Options {
			r.Param(name, value)
		}
		if next != "" {
			r.Param("continue", next)
		}
		if err := Answer(r.Do(ctx), &page); err != nil {
			return page.Metadata, fmt.Errorf("list %s: %w", what, err)
		}
		each(page.Items)
		if next = page.Metadata.Continue; next == "" {
			return page.Metadata, nil
		}
	}
}

// Right is a permission in all namespaces. Resource may have a subresource, such as "pods/log".
type Right struct{ Verb, Group, Resource string }

// Permitted returns an error that names the permissions that are missing, and which file has a role
// with them. If the API server does not say, requests will show it.
func Permitted(ctx context.Context, api rest.Interface, rights []Right, role string) error {
	var lacking []string
	for _, r := range rights {
		resource, sub, _ := strings.Cut(r.Resource, "/")
		review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{
			"resourceAttributes": map[string]string{"verb": r.Verb, "group": r.Group, "resource": resource, "subresource": sub}}}
		body, err := json.Marshal(review)
		if err != nil {
			return err
		}
		var answer struct{ Status *struct{ Allowed bool } }
		err = Answer(api.Verb(http.MethodPost).AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
			SetHeader("Content-Type", JSON).SetHeader("Accept", JSON).Body(body).Do(ctx), &answer)
		if err == nil && answer.Status != nil && !answer.Status.Allowed {
			text := r.Verb + " " + r.Resource
			if r.Group != "" {
				text += "." + r.Group
			}
			lacking = append(lacking, text)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("permissions are missing: %s; the ClusterRole nftproxy-%s in deploy/kubectl/%s.yaml has them", strings.Join(lacking, ", "), role, role)
}
