package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

const (
	// LabelConverge is on all objects of a measurement.
	LabelConverge = "nftproxy.dev/converge"
	// annotationSeconds is how long a run can take; after that its namespace is a leftover.
	annotationSeconds = "nftproxy.dev/converge-seconds"
	// namespacePrefix is how the names of namespaces begin. Others are never deleted.
	namespacePrefix = "nftproxy-converge-"
	probeName       = "probe"
	probePort       = 9 // discard
)

// requestTimeout limits one request that changes an object. A signal does not interrupt it: it
// would not be known whether there is something to remove.
const requestTimeout = 15 * time.Second

// probe is a Service without traffic, whose endpoint changes in each round. Endpoints have
// addresses for documentation (RFC 5737, RFC 3849), where no host answers.
type probe struct {
	api       rest.Interface
	options   *ConvergeOptions
	seconds   int // that the run can take
	namespace string
	family    corev1.IPFamily
	endpoint  netip.AddrPort // of the last change
	answered  time.Time      // when the API server had answered to it
}

func newProbe(api rest.Interface, o *ConvergeOptions, limit time.Duration) *probe {
	return &probe{api: api, options: o, seconds: int(limit.Seconds()), namespace: namespacePrefix + rand.String(6)}
}

// service returns namespace/name of the Service.
func (p *probe) service() string { return p.namespace + "/" + probeName }

func (p *probe) path(group, resource string) string {
	return group + "/namespaces/" + p.namespace + "/" + resource
}

const (
	core      = "/api/v1"
	discovery = "/apis/discovery.k8s.io/v1"
)

func (p *probe) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelConverge: "true"}}
}

// create removes leftovers of earlier runs, and creates the objects.
func (p *probe) create(ctx context.Context, r *Convergence) error {
	namespace := &corev1.Namespace{ObjectMeta: p.meta(p.namespace)}
	namespace.Annotations = map[string]string{annotationSeconds: strconv.Itoa(p.seconds)}
	if err := p.send(ctx, p.api.Post().AbsPath(core, "namespaces"), namespace, namespace); err != nil {
		return fmt.Errorf("create namespace %s: %w", p.namespace, err)
	}
	if err := p.removeLeftovers(ctx, namespace.CreationTimestamp.Time, r); err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: p.meta(probeName), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: probePort, Protocol: corev1.ProtocolTCP}}}}
	if p.options.ProxyName != "" {
		service.Labels[convert.LabelProxyName] = p.options.ProxyName
	}
	if err := p.send(ctx, p.api.Post().AbsPath(p.path(core, "services")), service, service); err != nil {
		return fmt.Errorf("create Service %s: %w", p.service(), err)
	}
	p.family = corev1.IPv4Protocol
	if len(service.Spec.IPFamilies) > 0 {
		p.family = service.Spec.IPFamilies[0]
	}
	slice := p.slice(0)
	slice.ObjectMeta = p.meta(probeName)
	slice.Labels[discoveryv1.LabelServiceName], slice.Labels[discoveryv1.LabelManagedBy] = probeName, "kubectl-nftproxy"
	if err := p.send(ctx, p.api.Post().AbsPath(p.path(discovery, "endpointslices")), slice, nil); err != nil {
		return fmt.Errorf("create EndpointSlice %s: %w", p.service(), err)
	}
	return nil
}

// change gives the Service the endpoint of a round, in place of the one before.
func (p *probe) change(ctx context.Context, round int) error {
	slice := p.slice(round)
	request := p.api.Patch(types.MergePatchType).AbsPath(p.path(discovery, "endpointslices"), probeName)
	if err := p.send(ctx, request, map[string]any{"endpoints": slice.Endpoints}, nil); err != nil {
		return fmt.Errorf("change EndpointSlice %s: %w", p.service(), err)
	}
	return nil
}

// slice returns an EndpointSlice with the endpoint of a round, which becomes the present one.
func (p *probe) slice(round int) *discoveryv1.EndpointSlice {
	port, protocol := int32(probePort), corev1.ProtocolTCP
	address := netip.AddrFrom4([4]byte{192, 0, 2, byte(round + 1)})
	if p.family == corev1.IPv6Protocol {
		address = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(round + 1)})
	}
	p.endpoint = netip.AddrPortFrom(address, probePort)
	ready := true
	return &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressType(p.family),
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
}

// send sends an object, and notes when the answer has arrived. into may be nil.
func (p *probe) send(ctx context.Context, request *rest.Request, object, into any) error {
	if err := ended(ctx); err != nil {
		return err
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	request.Body(body).SetHeader("Accept", kubectl.JSON)
	if _, ok := object.(map[string]any); !ok {
		request.SetHeader("Content-Type", kubectl.JSON)
	}
	result := request.Do(whole)
	p.answered = time.Now()
	if into == nil {
		into = new(json.RawMessage)
	}
	return kubectl.Answer(result, into)
}

const (
	removeTimeout = 30 * time.Second
	// gonePatience is how long a namespace that is being deleted is waited for.
	gonePatience = 15 * time.Second
)

// ErrNotRemoved means that objects of a measurement remain.
var ErrNotRemoved = errors.New("objects of this measurement are not removed")

// remove removes all objects, also if ctx has ended, and waits until the namespace is gone. The
// rules on the nodes do not depend on that: the Service is removed first.
func (p *probe) remove(ctx context.Context, r *Convergence) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := errors.Join(
		p.delete(ctx, p.path(discovery, "endpointslices")+"/"+probeName),
		p.delete(ctx, p.path(core, "services")+"/"+probeName),
		p.delete(ctx, core+"/namespaces/"+p.namespace))
	if err != nil {
		return fmt.Errorf("%w: %w\nremove them with: kubectl delete namespace %s", ErrNotRemoved, err, p.namespace)
	}
	patient, cancel := context.WithTimeout(ctx, gonePatience)
	defer cancel()
	for patient.Err() == nil {
		all, err := p.namespaces(patient)
		if err != nil {
			break
		}
		if r.Remains = ""; all[p.namespace] == nil {
			return nil
		}
		r.Remains = p.namespace
		_ = wait(patient, firstPause) // the loop ends then
	}
	r.Remains = p.namespace
	return nil
}

// delete deletes an object that may be gone.
func (p *probe) delete(ctx context.Context, path string) error {
	err := p.api.Delete().AbsPath(path).SetHeader("Accept", kubectl.JSON).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// namespaces returns the namespaces of all measurements, by name.
func (p *probe) namespaces(ctx context.Context) (map[string]*corev1.Namespace, error) {
	out := make(map[string]*corev1.Namespace)
	q := kubectl.Query{Path: core + "/namespaces", Options: map[string]string{"labelSelector": LabelConverge}}
	_, err := kubectl.List(ctx, p.api, "namespaces", q, func(page []corev1.Namespace) {
		for i := range page {
			if n := &page[i]; strings.HasPrefix(n.Name, namespacePrefix) && n.Labels[LabelConverge] != "" {
				out[n.Name] = n
			}
		}
	})
	return out, err
}

// removeLeftovers removes the namespaces of runs that did not end by themselves. now is the time on
// the clock that their times are of.
func (p *probe) removeLeftovers(ctx context.Context, now time.Time, r *Convergence) error {
	all, err := p.namespaces(ctx)
	if err != nil {
		return err
	}
	for name, n := range all {
		if name == p.namespace || n.DeletionTimestamp != nil {
			continue
		}
		seconds, _ := strconv.Atoi(n.Annotations[annotationSeconds]) // malformed: it was changed by hand
		if ends := n.CreationTimestamp.Add(time.Duration(seconds) * time.Second); now.Before(ends) {
			r.Others = append(r.Others, Other{Namespace: name, Ends: ends})
			continue
		}
		if err := p.delete(ctx, core+"/namespaces/"+name); err != nil {
			return fmt.Errorf("remove namespace %s of an earlier measurement: %w", name, err)
		}
		r.Removed = append(r.Removed, name)
	}
	return nil
}

// rights are the permissions that a measurement needs beside those of status.
var rights = []struct{ verb, group, resource string }{
	{"create", "", "namespaces"}, {"list", "", "namespaces"}, {"delete", "", "namespaces"},
	{"create", "", "services"}, {"delete", "", "services"},
	{"create", "discovery.k8s.io", "endpointslices"}, {"patch", "discovery.k8s.io", "endpointslices"}, {"delete", "discovery.k8s.io", "endpointslices"},
}

// permitted returns an error that names the permissions that are missing. If the API server does
// not say, requests will show it.
func (f *Fleet) permitted(ctx context.Context) error {
	var lacking []string
	for _, r := range rights {
		review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{
			"resourceAttributes": map[string]string{"verb": r.verb, "group": r.group, "resource": r.resource}}}
		body, err := json.Marshal(review)
		if err != nil {
			return err
		}
		var answer struct{ Status *struct{ Allowed bool } }
		err = kubectl.Answer(f.API.Verb(http.MethodPost).AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
			SetHeader("Content-Type", kubectl.JSON).SetHeader("Accept", kubectl.JSON).Body(body).Do(ctx), &answer)
		if err == nil && answer.Status != nil && !answer.Status.Allowed {
			resource := r.resource
			if r.group != "" {
				resource += "." + r.group
			}
			lacking = append(lacking, r.verb+" "+resource)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("permissions are missing: %s; the ClusterRole nftproxy-converge in deploy/kubectl/converge.yaml has them", strings.Join(lacking, ", "))
}
