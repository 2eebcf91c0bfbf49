package migrate

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// Client reads the objects of a migration, as an operator.
type Client struct {
	api    rest.Interface
	access kubectl.Access
	Target
}

// Target names the DaemonSet of kube-proxy and the nodes that it is to leave.
type Target struct {
	Namespace, DaemonSet string
	Label                Label
}

func (t Target) String() string { return t.Namespace + "/" + t.DaemonSet }

// NewClient returns a client. It does not connect yet.
func NewClient(a kubectl.Access, t Target) (*Client, error) {
	api, err := a.REST()
	if err != nil {
		return nil, err
	}
	return &Client{api, a, t}, nil
}

// daemon has the fields of a DaemonSet that matter here. The type of the API is in a package that
// would make the program a tenth larger.
type daemon struct {
	Metadata struct {
		Generation      int64  `json:"generation"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Selector       metav1.LabelSelector `json:"selector"`
		UpdateStrategy struct {
			Type string `json:"type"`
		} `json:"updateStrategy"`
		Template struct {
			Spec struct {
				Affinity affinity `json:"affinity"`
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

func (c *Client) get(ctx context.Context, path string, into any) error {
	return kubectl.Answer(c.api.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx), into)
}

func (c *Client) read(ctx context.Context) (*daemon, error) {
	var d daemon
	err := c.get(ctx, c.path(c.DaemonSet), &d)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w: name kube-proxy's with --daemonset and --namespace; not every distribution runs it as a DaemonSet", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read DaemonSet %s: %w", c.Target, err)
	}
	return &d, nil
}
