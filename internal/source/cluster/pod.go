package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pod says where a pod runs, and its addresses.
type Pod struct {
	Node      string
	Hosts     []netip.Addr // addresses of the node
	Addresses []netip.Addr // none: it has not started
}

// Pod asks the API server about a pod, which needs the permission to get it.
func (a Access) Pod(ctx context.Context, log *slog.Logger, namespace, name string) (p Pod, err error) {
	client, err := a.DeferredGroup(log, corev1.SchemeGroupVersion, &corev1.Pod{})()
	if err != nil {
		return p, err
	}
	body, err := client.Get().AbsPath("/api/v1/namespaces/"+namespace+"/pods/"+name).SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return p, fmt.Errorf("get pod %s/%s: the API server has none of this name", namespace, name)
	case err != nil:
		return p, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	var pod struct {
		Spec   struct{ NodeName string }
		Status struct{ HostIPs, PodIPs []struct{ IP netip.Addr } }
	}
	if err := json.Unmarshal(body, &pod); err != nil {
		return p, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	p.Node = pod.Spec.NodeName
	for _, ip := range pod.Status.HostIPs {
		p.Hosts = append(p.Hosts, ip.IP)
	}
	for _, ip := range pod.Status.PodIPs {
		p.Addresses = append(p.Addresses, ip.IP)
	}
	return p, nil
}
