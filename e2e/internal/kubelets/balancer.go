package kubelets

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// balancer gives each Service of type LoadBalancer an address, and routes it from
// the control plane's network to the nodes, as routers with ECMP do: to all of
// them, or, with externalTrafficPolicy Local, to those whose health check answers
// 200. Packets reach the nodes unchanged.
type balancer struct {
	c      *Cluster
	serves func(namespace string) bool
	routes map[netip.Addr][]string // addresses of nodes, by that of the Service
	cancel context.CancelFunc
	done   chan struct{}
}

// Networks of the balancer: its Services, and the client beyond it, which is not
// on the network of the nodes.
const (
	balanced4, balanced6 = "172.31.0.", "fd00:31::"
	outside4, outside6   = "172.29.0.1", "fd00:29::1"
)

// cleanupFinalizer keeps a Service until its load balancer has gone.
const cleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// StartBalancer serves the Services of type LoadBalancer in some namespaces.
func (c *Cluster) StartBalancer(log io.Writer, serves func(namespace string) bool) error {
	// Packets to an address that no Service has are lost, as on the Internet.
	err := script(c.Control, fmt.Sprintf(`
		ip addr replace %[1]s/32 dev lo
		ip addr replace %[2]s/128 dev lo nodad
		ip link add void0 type veth peer name void1
		ip link set void0 up
		ip link set void1 up
		ip neigh add 172.28.0.2 lladdr 02:00:00:00:00:01 dev void0
		ip -6 neigh add fd00:28::2 lladdr 02:00:00:00:00:01 dev void0
		ip route add %[3]s0/24 via 172.28.0.2 dev void0 onlink src %[1]s
		ip route add %[4]s/64 via fd00:28::2 dev void0 onlink src %[2]s`, outside4, outside6, balanced4, balanced6))
	if err != nil {
		return fmt.Errorf("network of the load balancer: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &balancer{c: c, serves: serves, routes: map[netip.Addr][]string{}, cancel: cancel, done: make(chan struct{})}
	c.balancer = b
	go func() {
		defer close(b.done)
		for range await.Ticks(ctx.Done(), 300*time.Millisecond) {
			if err := b.sync(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintf(log, "%s load balancer: %v\n", time.Now().Format(time.TimeOnly), err)
			}
		}
	}()
	return nil
}

func (b *balancer) stop() {
	b.cancel()
	<-b.done
}

// sync brings addresses and routes up to date.
func (b *balancer) sync(ctx context.Context) error {
	services, err := b.c.API.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	services.Items = slices.DeleteFunc(services.Items, func(s corev1.Service) bool { return !b.serves(s.Namespace) })
	want := map[netip.Addr][]string{}
	for i := range services.Items {
		s := &services.Items[i]
		addresses, err := b.service(ctx, s, services.Items)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", s.Namespace, s.Name, err)
		}
		for _, a := range addresses {
			want[a] = b.nodes(ctx, s, a)
		}
	}
	return b.route(want)
}

// service gives a Service its addresses, or takes them away, and returns those
// that are to be routed.
func (b *balancer) service(ctx context.Context, s *corev1.Service, all []corev1.Service) ([]netip.Addr, error) {
	has := slices.Contains(s.Finalizers, cleanupFinalizer)
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.DeletionTimestamp != nil {
		if !has {
			return nil, nil
		}
		if err := b.patch(ctx, s, map[string]any{"status": map[string]any{"loadBalancer": nil}}, "status"); err != nil {
			return nil, err
		}
		return nil, b.finalizers(ctx, s, slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == cleanupFinalizer }))
	}
	if s.Spec.LoadBalancerClass != nil {
		return nil, nil
	}
	if !has {
		if err := b.finalizers(ctx, s, append(slices.Clone(s.Finalizers), cleanupFinalizer)); err != nil {
			return nil, err
		}
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 {
		return ingress(s), nil
	}
	status := &s.Status.LoadBalancer // so that the next Service gets another address
	for _, f := range s.Spec.IPFamilies {
		mode := corev1.LoadBalancerIPModeVIP
		status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: unused(f, all).String(), IPMode: &mode})
	}
	return nil, b.patch(ctx, s, map[string]any{"status": map[string]any{"loadBalancer": status}}, "status")
}

// ingress returns the addresses of a Service.
func ingress(s *corev1.Service) (addresses []netip.Addr) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// unused returns an address that no Service has.
func unused(f corev1.IPFamily, all []corev1.Service) netip.Addr {
	prefix := balanced4
	if f == corev1.IPv6Protocol {
		prefix = balanced6
	}
	for i := 1; ; i++ {
		a := netip.MustParseAddr(prefix + strconv.Itoa(i))
		if !slices.ContainsFunc(all, func(s corev1.Service) bool { return slices.Contains(ingress(&s), a) }) {
			return a
		}
	}
}

// nodes returns the addresses of the nodes that are to get the packets.
func (b *balancer) nodes(ctx context.Context, s *corev1.Service, a netip.Addr) (nodes []string) {
	for _, n := range b.c.NodeList {
		node := n.IPv4
		if a.Is6() {
			node = n.IPv6
		}
		local := s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && s.Spec.HealthCheckNodePort != 0
		if local && !b.healthy(ctx, node, s.Spec.HealthCheckNodePort) {
			continue
		}
		nodes = append(nodes, node)
		if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
			break // nodes share no bindings: the only client has to stay on one
		}
	}
	return nodes
}

func (b *balancer) healthy(ctx context.Context, node string, port int32) bool {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: b.c.Control.DialContext, DisableKeepAlives: true}}
	r, err := client.Get("http://" + net.JoinHostPort(node, strconv.Itoa(int(port))))
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

func (b *balancer) finalizers(ctx context.Context, s *corev1.Service, all []string) error {
	return b.patch(ctx, s, map[string]any{"metadata": map[string]any{"finalizers": all}})
}

func (b *balancer) patch(ctx context.Context, s *corev1.Service, change any, subresource ...string) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = b.c.API.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, text, metav1.PatchOptions{}, subresource...)
	return err
}

// route makes the routes of the control plane's network those that are wanted.
func (b *balancer) route(want map[netip.Addr][]string) error {
	for a, nodes := range want {
		if slices.Equal(b.routes[a], nodes) {
			continue
		}
		source := outside4
		if a.Is6() {
			source = outside6
		}
		command := fmt.Sprintf("ip route replace %s src %s", a, source)
		for _, n := range nodes {
			command += " nexthop via " + n
		}
		if len(nodes) == 0 {
			command = fmt.Sprintf("ip route del %s", a)
		}
		if err := script(b.c.Control, command); err != nil {
			return err
		}
		b.routes[a] = nodes
	}
	for a, nodes := range b.routes {
		if _, ok := want[a]; ok {
			continue
		}
		if len(nodes) > 0 {
			if err := script(b.c.Control, "ip route del "+a.String()); err != nil {
				return err
			}
		}
		delete(b.routes, a)
	}
	return nil
}

// LoadBalancerTests reports whether a namespace is one of the load balancer tests of
// Kubernetes. Other tests play the balancer themselves.
func LoadBalancerTests(namespace string) bool {
	return strings.HasPrefix(namespace, "loadbalancers-") || strings.HasPrefix(namespace, "esipp-")
}
