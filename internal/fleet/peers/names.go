package peers

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/kubectl"
)

const named = "cluster-ip"

// dnsLabel is on the DNS Service of a cluster in kube-system, also where CoreDNS serves it.
const dnsLabel = "k8s-app=kube-dns"

// Names returns a case for each address of a Service, which pods on a node resolve by its name. They are skipped where
// the cluster has no DNS Service.
func (l *Lab) Names(ctx context.Context, node string) (out []*conntest.Case, err error) {
	if l.dns == nil {
		l.dns = new(bool)
		q := kubectl.Query{Path: kubectl.CoreAPI + "/namespaces/kube-system/services", Options: map[string]string{"labelSelector": dnsLabel}}
		_, err := kubectl.List(ctx, l.fleet.API, "DNS Services", q, func(page []corev1.Service) { *l.dns = *l.dns || len(page) > 0 })
		if err != nil {
			return nil, err
		}
	}
	for _, a := range l.clusterIPs[named] {
		c := conntest.NewName(node, named, named+"."+l.Name+".svc", []netip.Addr{a})
		if !*l.dns {
			c.Skip = "the cluster has no DNS Service: there is none with the label " + dnsLabel + " in kube-system"
		}
		out = append(out, c)
	}
	return out, nil
}
