package files

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

type kind struct {
	name     string
	versions []string // the accepted ones; the first is the one to advise
	cluster  bool     // of no namespace
	read     func(*Reader, *manifest.Object, *object) (metav1.Object, []*manifest.FieldError)
}

var kinds = []kind{
	{name: balance.Kind, versions: []string{balance.Version, ""}, read: readBalance},
	{name: balance.PoolKind, versions: []string{balance.Version, ""}, read: func(_ *Reader, m *manifest.Object, o *object) (metav1.Object, []*manifest.FieldError) {
		p, problems, found := balance.ReadPool(m)
		o.rare = &details{pool: p, problems: problems}
		return &metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, found
	}},
	{name: balance.DefaultsKind, versions: []string{balance.Version, ""}, cluster: true, read: func(_ *Reader, m *manifest.Object, o *object) (metav1.Object, []*manifest.FieldError) {
		d, problems, found := balance.ReadDefaults(m)
		o.rare = &details{defaults: d, problems: problems}
		return &metav1.ObjectMeta{}, found // which have no name
	}},
	{name: "Service", versions: []string{"v1"}, read: decode(func(f *Reader, s *corev1.Service, o *object) (found []*manifest.FieldError) {
		completeService(&s.Spec)
		o.service, found = convert.Service(s, f.ProxyName)
		if !isFromServer(s) {
			convert.OnNode(o.service)
		}
		o.selects = len(s.Spec.Selector) > 0
		if convert.ServedBy(f.ProxyName, s.Labels) {
			found = append(found, reviewService(s, o.service)...)
		}
		return found
	})},
	{name: "EndpointSlice", versions: []string{"discovery.k8s.io/v1"}, read: decode(func(_ *Reader, s *discoveryv1.EndpointSlice, o *object) []*manifest.FieldError {
		for i := range s.Ports { // as the API server does; in its own data a missing name means an unused port (2.7)
			s.Ports[i].Name = cmp.Or(s.Ports[i].Name, new(string))
		}
		slice, found := convert.EndpointSlice(s)
		if slice != nil {
			o.slices = []*model.EndpointSlice{slice}
		}
		return found
	})},
	//lint:ignore SA1019 files may still hold Endpoints
	{name: "Endpoints", versions: []string{"v1"}, read: decode(func(_ *Reader, e *corev1.Endpoints, o *object) (found []*manifest.FieldError) {
		o.slices, found = convert.Endpoints(e)
		return found
	})},
	{name: "Node", versions: []string{"v1"}, cluster: true, read: decode(func(_ *Reader, n *corev1.Node, o *object) (found []*manifest.FieldError) {
		o.editDetails().node, found = convert.Node(n)
		return found
	})},
	// v1beta1 has the same fields.
	{name: "ServiceCIDR", versions: []string{"networking.k8s.io/v1", "networking.k8s.io/v1beta1"}, cluster: true,
		read: decode(func(_ *Reader, s *networkingv1.ServiceCIDR, o *object) (found []*manifest.FieldError) {
			o.editDetails().cidrs, found = convert.ServiceCIDR(s)
			return found
		})},
}

func readBalance(f *Reader, m *manifest.Object, o *object) (metav1.Object, []*manifest.FieldError) {
	u := balance.Decode(m)
	if len(u.Pools()) > 0 || f.defaulted[directoryOf(m.File)] {
		o.editDetails().waiting = &waiting{u, m}
		return u.Meta(), nil
	}
	b := u.Resolve(nil, nil, f.ProxyName)
	o.service, o.slices = b.Service, b.Slices
	o.addProblems(b.Problems)
	if f.Keep {
		o.editDetails().manifests = b.Objects
	}
	return b.Meta, b.Findings
}

// decode returns a function that decodes a T and converts it into an object.
func decode[T any, P interface {
	*T
	metav1.Object
}](convert func(*Reader, P, *object) []*manifest.FieldError) func(*Reader, *manifest.Object, *object) (metav1.Object, []*manifest.FieldError) {
	return func(f *Reader, m *manifest.Object, o *object) (metav1.Object, []*manifest.FieldError) {
		v := P(new(T))
		o.addProblems(m.Decode(v))
		return v, convert(f, v, o)
	}
}

// knownKinds are the kinds, as messages list them.
const knownKinds = "Balance, Service, EndpointSlice, Endpoints, Node or ServiceCIDR"

func findKind(name string) (*kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil, false
	}
	return &kinds[i], true
}

// likelyKind returns the kind that the author of an object most likely meant, or
// nothing. Other kinds of another API group are none of ours.
func likelyKind(kind, apiVersion string) string {
	var names []string
	for _, k := range kinds {
		if apiVersion == "" || slices.Contains(k.versions, apiVersion) {
			names = append(names, k.name)
		}
	}
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, kind) }); i >= 0 {
		return names[i]
	}
	if similar := suggest.Similar(kind, names); len(similar) > 0 {
		return similar[0]
	}
	return ""
}

func isFromServer(o metav1.Object) bool { return o.GetUID() != "" || o.GetResourceVersion() != "" }

// isForeign reports whether an API group may have kinds of its own by the names of
// ours, as serving.knative.dev has its Service.
func isForeign(apiVersion string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	return grouped && strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && !strings.HasPrefix(balance.Version, group+"/")
}

// completeService fills in fields as the API server would, so that a file may give clusterIP alone, clusterIPs
// alone, or leave out ipFamilies. Given fields are never changed.
func completeService(s *corev1.ServiceSpec) {
	if s.ClusterIP == "" && len(s.ClusterIPs) > 0 {
		s.ClusterIP = s.ClusterIPs[0]
	}
	if len(s.IPFamilies) > 0 && len(s.ClusterIPs) == 0 && s.ClusterIP != "" {
		s.ClusterIPs = []string{s.ClusterIP}
	}
	if len(s.IPFamilies) > 0 {
		return
	}
	for _, text := range s.ClusterIPs {
		a, problem := convert.ParseAddress(text)
		if problem != "" {
			// The conversion reports the address.
			a = netip.IPv4Unspecified()
		}
		s.IPFamilies = append(s.IPFamilies, corev1.IPFamily(model.FamilyOf(a).String()))
	}
}
