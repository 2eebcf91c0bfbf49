package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// Client reads and changes the objects of a migration, as an operator.
type Client struct {
	api rest.Interface
	Target
}

// Target names the DaemonSet of kube-proxy and the nodes that it is to leave.
type Target struct {
	Namespace, DaemonSet string
	Label                Label
}

func (t Target) String() string { return t.Namespace + "/" + t.DaemonSet }

// Access finds the API server.
type Access struct{ kubectl.Access }

// Client returns a client. It does not connect yet.
func (a Access) Client(t Target) (*Client, error) {
	api, err := a.REST()
	if err != nil {
		return nil, err
	}
	return &Client{api, t}, nil
}

// daemon has the fields of a DaemonSet that matter here. The type of the API is in a package that
// would make the program a tenth larger.
type daemon struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Spec struct {
		Selector       metav1.LabelSelector `json:"selector"`
		UpdateStrategy struct {
			Type string `json:"type"`
		} `json:"updateStrategy"`
		Template struct {
			Spec struct {
				Affinity json.RawMessage `json:"affinity"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
		Desired            int   `json:"desiredNumberScheduled"`
		Updated            int   `json:"updatedNumberScheduled"`
		Ready              int   `json:"numberReady"`
	} `json:"status"`
}

func (c *Client) path(name string) string {
	return "/apis/apps/v1/namespaces/" + c.Namespace + "/daemonsets/" + name
}

func (c *Client) get(ctx context.Context, path string, into any, options ...string) error {
	r := c.api.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON)
	for i := 0; i < len(options); i += 2 {
		r.Param(options[i], options[i+1])
	}
	return kubectl.Answer(r.Do(ctx), into)
}

// read returns kube-proxy's DaemonSet.
func (c *Client) read(ctx context.Context) (*daemon, affinity, error) {
	var d daemon
	err := c.get(ctx, c.path(c.DaemonSet), &d)
	if err != nil {
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w: name kube-proxy's with --daemonset and --namespace; not every distribution runs it as a DaemonSet", err)
		}
		return nil, affinity{}, fmt.Errorf("read DaemonSet %s: %w", c.Target, err)
	}
	a, err := parseAffinity(d.Spec.Template.Spec.Affinity)
	if err != nil {
		return nil, affinity{}, fmt.Errorf("read affinity of DaemonSet %s: %w", c.Target, err)
	}
	return &d, a, nil
}

// patch sends a patch and returns the affinity after it. With dry, the API server
// checks everything and stores nothing.
func (c *Client) patch(ctx context.Context, p Patch, dry bool) (affinity, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return affinity{}, err
	}
	r := c.api.Patch(types.JSONPatchType).AbsPath(c.path(c.DaemonSet)).SetHeader("Accept", runtime.ContentTypeJSON).
		Param("fieldManager", "nftproxy-migrate").Body(body)
	if dry {
		r.Param("dryRun", metav1.DryRunAll)
	}
	var d daemon
	if err := kubectl.Answer(r.Do(ctx), &d); err != nil {
		return affinity{}, err
	}
	return parseAffinity(d.Spec.Template.Spec.Affinity)
}

// labelled returns the names of the nodes with the label.
func (c *Client) labelled(ctx context.Context) (names []string, err error) {
	q := kubectl.Query{Path: "/api/v1/nodes", Options: map[string]string{"labelSelector": c.Label.String()}}
	_, err = kubectl.List(ctx, c.api, "nodes", q, func(nodes []corev1.Node) {
		for _, n := range nodes {
			names = append(names, n.Name)
		}
	})
	slices.Sort(names)
	return names, err
}
