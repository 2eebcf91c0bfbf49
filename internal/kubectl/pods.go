package kubectl

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/client-go/rest"
)

// Pods finds the pods that have addresses. It is not safe for concurrent use.
type Pods struct {
	api   rest.Interface
	known map[netip.Addr]string
}

// NewPods returns a finder with the access of an operator, who needs the permission to list
// pods.
func NewPods(a Access) (*Pods, error) {
	api, err := a.REST()
	if err != nil {
		return nil, err
	}
	return &Pods{api: api, known: make(map[netip.Addr]string)}, nil
}

// maxPods is how many addresses are remembered.
const maxPods = 4096

// At returns "namespace/name" of the pod that has an address; empty: none has it, or several,
// which have the address of their node. Each address is asked for once.
func (p *Pods) At(ctx context.Context, a netip.Addr) (string, error) {
	if name, ok := p.known[a]; ok {
		return name, nil
	}
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name string }
		}
	}
	request := p.api.Get().AbsPath("/api/v1/pods").SetHeader("Accept", Metadata).Param("fieldSelector", "status.podIP="+a.String()).Param("limit", "2")
	if err := Answer(request.Do(ctx), &list); err != nil {
		return "", fmt.Errorf("look for the pod with the address %s: %w", a, err)
	}
	name := ""
	if len(list.Items) == 1 {
		name = list.Items[0].Metadata.Namespace + "/" + list.Items[0].Metadata.Name
	}
	if len(p.known) >= maxPods {
		clear(p.known)
	}
	p.known[a] = name
	return name, nil
}
