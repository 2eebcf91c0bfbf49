package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
	var pods []corev1.Pod
	q := kubectl.Query{Path: "/api/v1/namespaces/" + namespace + "/pods", Options: map[string]string{"fieldSelector": "metadata.name=" + pod}}
	if _, err := kubectl.List(ctx, f.API, "pods", q, func(page []corev1.Pod) { pods = append(pods, page...) }); err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("there is no pod %s/%s", namespace, pod)
	}
	spec, out := &pods[0].Spec, &Client{Node: pods[0].Spec.NodeName}
	if !spec.HostNetwork {
		out.Addresses = AddressesOf(&pods[0])
	}
	if out.Node == "" || !spec.HostNetwork && len(out.Addresses) == 0 {
		return nil, fmt.Errorf("pod %s/%s has no node or no address yet", namespace, pod)
	}
	return out, nil
}

// AddressesOf returns the addresses of a pod.
func AddressesOf(p *corev1.Pod) (out []netip.Addr) {
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil { // the API server accepts no other
			out = append(out, a)
		}
	}
	return out
}
