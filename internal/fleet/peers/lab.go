package peers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// Options say what a test makes.
type Options struct {
	Image    string
	Services bool          // else there are clients only
	Host     bool          // also clients in the networks of nodes
	Control  uint16        // port on localhost where pods are asked
	Patience time.Duration // for the pods of a batch to start
	Limit    time.Duration // longest time that the test can take
}

// Lab is the namespace of a test, with the Services and pods in it.
type Lab struct {
	*kubectl.Scratch
	Options
	fleet   *fleet.Fleet // reaches the pods
	token   string
	started int // pods so far, which have numbers
	running []corev1.Pod
	// families are the families of each Service, and clusterIPs the addresses.
	families   map[string][]corev1.IPFamily
	clusterIPs map[string][]netip.Addr
	dns        *bool // the cluster has a DNS Service; nil: not known yet
}

// Peer is a pod that has started.
type Peer struct {
	conntest.Remote
	Node      string
	From      conntest.Origin
	Addresses []netip.Addr
	ImageID   string
}

// rights are the permissions that a test needs beside the ones of status.
func (o *Options) rights() []kubectl.Right {
	out := []kubectl.Right{
		{Verb: "create", Resource: "namespaces"}, {Verb: "list", Resource: "namespaces"}, {Verb: "delete", Resource: "namespaces"},
		{Verb: "create", Resource: "pods"}, {Verb: "deletecollection", Resource: "pods"}, {Verb: "create", Resource: "pods/portforward"}, {Verb: "get", Resource: "pods/portforward"},
	}
	if o.Services {
		out = append(out, kubectl.Right{Verb: "create", Resource: "services"}, kubectl.Right{Verb: "patch", Resource: "services/status"})
	}
	return out
}

// Open names the permissions that are missing, removes what killed tests have left, and makes a
// namespace with Services. It is to be removed also after an error, if there is a lab.
func Open(ctx context.Context, f *fleet.Fleet, o Options) (*Lab, error) {
	if err := kubectl.Permitted(ctx, f.API, o.rights(), "test"); err != nil {
		return nil, err
	}
	reach := f.Options
	reach.Port, reach.Way = o.Control, fleet.PortForward
	peers, err := fleet.Open(reach)
	if err != nil {
		return nil, err
	}
	l := &Lab{Options: o, fleet: peers, token: rand.Text(), families: make(map[string][]corev1.IPFamily), clusterIPs: make(map[string][]netip.Addr)}
	l.Scratch = kubectl.NewScratch(f.API, kubectl.Purpose{Label: Label, Prefix: "nftproxy-test-"}, o.Limit)
	security := "restricted"
	if o.Host {
		security = "privileged"
	}
	if err := l.Create(ctx, map[string]string{"pod-security.kubernetes.io/enforce": security}); err != nil {
		return l, err
	}
	if o.Services {
		err = l.addServices(ctx)
	}
	return l, err
}

// addServices makes the Services. Two load balancers get addresses of their own.
func (l *Lab) addServices(ctx context.Context) error {
	number := uint16(mathrand.Uint32())
	for _, k := range kinds() {
		s := k.service(l.Scratch)
		if err := l.Send(ctx, l.fleet.API.Post().AbsPath(l.Path(kubectl.CoreAPI, "services")), s, s); err != nil {
			return fmt.Errorf("create Service %s: %w", k.name, err)
		}
		l.families[k.name] = s.Spec.IPFamilies
		for _, ip := range s.Spec.ClusterIPs {
			a, err := netip.ParseAddr(ip)
			if err != nil {
				return fmt.Errorf("read ClusterIP %q of Service %s: %w", ip, k.name, err)
			}
			l.clusterIPs[k.name] = append(l.clusterIPs[k.name], a)
		}
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		number++
		status := map[string]any{"status": map[string]any{"loadBalancer": corev1.LoadBalancerStatus{Ingress: balancerIPs(s.Spec.IPFamilies, number)}}}
		request := l.fleet.API.Patch(types.MergePatchType).AbsPath(l.Path(kubectl.CoreAPI, "services"), k.name, "status")
		if err := l.Send(ctx, request, status, nil); err != nil {
			return fmt.Errorf("give Service %s an address: %w", k.name, err)
		}
	}
	return nil
}

// Start starts pods on the nodes of a batch. It returns the ones that run, and why others do not.
func (l *Lab) Start(ctx context.Context, nodes []string, progress func(ready, all int)) (out []*Peer, untested []conntest.Reason, err error) {
	pods := make(map[string]*corev1.Pod)
	for i, node := range nodes {
		want := []*corev1.Pod{l.server(i, node)}
		if l.Host {
			want = append(want, l.onHost(i, node))
		}
		for _, p := range want {
			if err := l.createPod(ctx, p); err != nil {
				return nil, nil, fmt.Errorf("create pod %s on node %s: %w", p.Name, node, err)
			}
			pods[p.Name] = p
		}
	}
	l.started += len(nodes)
	running, why, err := l.await(ctx, pods, progress)
	if err != nil {
		return nil, nil, err
	}
	l.running = running
	for _, node := range nodes {
		reason := why[node]
		here := func(p corev1.Pod) bool { return p.Spec.NodeName == node }
		if reason == "" && !slices.ContainsFunc(running, here) {
			reason = "the API server does not list its pods"
		}
		if reason != "" {
			untested = append(untested, conntest.Reason{Node: node, Reason: reason})
		}
	}
	for i := range running {
		if why[running[i].Spec.NodeName] != "" { // another pod on the node does not run
			continue
		}
		p, err := l.peer(&running[i])
		if err != nil {
			return out, untested, err
		}
		out = append(out, p)
	}
	return out, untested, nil
}

// createPod creates a pod, also if the control plane has not made the service account of a new
// namespace yet, without which there are no pods.
func (l *Lab) createPod(ctx context.Context, p *corev1.Pod) error {
	var refusal error
	_, err := l.poll(ctx, func(context.Context) (bool, error) {
		refusal = l.Send(ctx, l.fleet.API.Post().AbsPath(l.Path(kubectl.CoreAPI, "pods")), p, nil)
		return refusal == nil || !apierrors.IsForbidden(refusal) || !strings.Contains(refusal.Error(), "error looking up service account"), nil
	})
	return errors.Join(err, refusal)
}

func (l *Lab) peer(p *corev1.Pod) (*Peer, error) {
	transport, err := l.fleet.Transport.To(&fleet.Agent{Node: p.Spec.NodeName, Namespace: l.Name, Pod: p.Name})
	if err != nil {
		return nil, err
	}
	out := &Peer{Remote: conntest.Remote{Transport: transport, Token: l.token}, Node: p.Spec.NodeName, From: conntest.Pod, Addresses: fleet.AddressesOf(p)}
	if p.Spec.HostNetwork {
		out.From = conntest.Host
	}
	for _, s := range p.Status.ContainerStatuses {
		out.ImageID = s.ImageID
	}
	return out, nil
}

// Stop removes the pods of a batch, and waits until they are gone.
func (l *Lab) Stop(ctx context.Context, peers []*Peer) error {
	for _, p := range peers {
		p.Close()
	}
	path := l.Path(kubectl.CoreAPI, "pods")
	result := l.fleet.API.Delete().AbsPath(path).SetHeader("Accept", kubectl.JSON).Param("labelSelector", Label).Do(ctx)
	if err := result.Error(); err != nil {
		return fmt.Errorf("remove the pods: %w", err)
	}
	var left []corev1.Pod
	var failure error
	late, err := l.poll(ctx, func(limited context.Context) (bool, error) {
		left, failure = l.list(limited)
		return failure == nil && len(left) == 0, failure
	})
	if !late || err != nil || failure != nil {
		return errors.Join(err, failure)
	}
	return fmt.Errorf("pod %s on node %s does not end within %s", left[0].Name, left[0].Spec.NodeName, l.Patience)
}

func (l *Lab) list(ctx context.Context) (all []corev1.Pod, err error) {
	q := kubectl.Query{Path: l.Path(kubectl.CoreAPI, "pods"), Options: map[string]string{"labelSelector": Label}}
	_, err = kubectl.List(ctx, l.fleet.API, "pods of the test", q, func(page []corev1.Pod) { all = append(all, page...) })
	return all, err
}

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
