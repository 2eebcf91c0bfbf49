package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Client is where connections come from.
type Client struct {
	Node      string
	Addresses []netip.Addr // none: the node itself
}

// Address returns the address of a family; the zero Addr: the node itself, or it has none.
func (c *Client) Address(f model.Family) netip.Addr {
	for _, a := range c.Addresses {
		if model.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// Find finds a client that is named "pod/NAMESPACE/NAME" or "node/NAME".
func (f *Fleet) Find(ctx context.Context, name string) (*Client, error) {
	kind, rest, _ := strings.Cut(name, "/")
	namespace, pod, both := strings.Cut(rest, "/")
	switch {
	case kind == "node" && rest != "" && !both:
		return &Client{Node: rest}, nil
	case kind != "pod" || namespace == "" || pod == "":
		return nil, fmt.Errorf("%q is no client: write pod/NAMESPACE/NAME or node/NAME", name)
	}
	var out *Client
	q := kubectl.Query{Path: "/api/v1/namespaces/" + namespace + "/pods", Options: map[string]string{"fieldSelector": "metadata.name=" + pod}}
	_, err := kubectl.List(ctx, f.API, "pods", q, func(page []struct {
		Spec struct {
			NodeName    string
			HostNetwork bool
		}
		Status struct{ PodIPs []struct{ IP netip.Addr } }
	}) {
		for _, p := range page {
			out = &Client{Node: p.Spec.NodeName}
			for _, a := range p.Status.PodIPs {
				if !p.Spec.HostNetwork {
					out.Addresses = append(out.Addresses, a.IP)
				}
			}
			if !p.Spec.HostNetwork && len(out.Addresses) == 0 {
				out.Node = "" // it has not started
			}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case out == nil:
		return nil, fmt.Errorf("there is no pod %s/%s", namespace, pod)
	case out.Node == "":
		return nil, fmt.Errorf("pod %s/%s has no node or no address yet", namespace, pod)
	}
	return out, nil
}
