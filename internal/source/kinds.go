package source

import (
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

// kind is a kind of object that a file may hold.
type kind struct {
	name     string
	versions []string // the accepted ones; the first is the one to advise
	cluster  bool     // of no namespace
	read     func(*objectReader, *decoder, *yaml.Node, *object)
}

var kinds = []kind{
	{name: "Service", versions: []string{"v1"}, read: (*objectReader).readService},
	{name: "EndpointSlice", versions: []string{"discovery.k8s.io/v1"}, read: (*objectReader).readSlice},
	{name: "Endpoints", versions: []string{"v1"}, read: (*objectReader).readEndpoints},
	{name: "Node", versions: []string{"v1"}, cluster: true, read: (*objectReader).readNode},
	// v1beta1 has the same fields.
	{name: "ServiceCIDR", versions: []string{"networking.k8s.io/v1", "networking.k8s.io/v1beta1"}, cluster: true, read: (*objectReader).readServiceCIDR},
}

// knownKinds names the kinds for people.
const knownKinds = "Service, EndpointSlice, Endpoints, Node or ServiceCIDR"

// findKind returns the kind of that name.
func findKind(name string) (*kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil, false
	}
	return &kinds[i], true
}

// foreign tells whether an API group may have kinds of its own by the names of
// ours, as serving.knative.dev has its Service.
func foreign(apiVersion string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	return grouped && strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// object is one object of a file, converted.
type object struct {
	place
	kind       string // empty: none could be read
	other      string // the kind of an object that is skipped
	meta       metav1.ObjectMeta
	service    *model.Service
	slices     []*model.EndpointSlice
	node       *model.Node
	cidrs      []netip.Prefix
	problems   []*Error
	warnings   []*Error
	conversion []*FieldError
	mistakes   []mistake
}

func (r *objectReader) readService(d *decoder, n *yaml.Node, o *object) {
	var s corev1.Service
	o.mistakes = d.decode(n, &s)
	o.meta = s.ObjectMeta
	completeService(&s.Spec)
	o.service, o.conversion = ConvertService(&s, r.proxyName)
}

func (*objectReader) readSlice(d *decoder, n *yaml.Node, o *object) {
	var s discoveryv1.EndpointSlice
	o.mistakes = d.decode(n, &s)
	o.meta = s.ObjectMeta
	completeSlice(&s)
	var slice *model.EndpointSlice
	if slice, o.conversion = ConvertEndpointSlice(&s); slice != nil {
		o.slices = []*model.EndpointSlice{slice}
	}
}

func (*objectReader) readEndpoints(d *decoder, n *yaml.Node, o *object) {
	//lint:ignore SA1019 files may still hold Endpoints
	var e corev1.Endpoints
	o.mistakes = d.decode(n, &e)
	o.meta = e.ObjectMeta
	o.slices, o.conversion = ConvertEndpoints(&e)
}

func (*objectReader) readNode(d *decoder, n *yaml.Node, o *object) {
	var node corev1.Node
	o.mistakes = d.decode(n, &node)
	o.meta = node.ObjectMeta
	o.node, o.conversion = ConvertNode(&node)
}

func (*objectReader) readServiceCIDR(d *decoder, n *yaml.Node, o *object) {
	var s networkingv1.ServiceCIDR
	o.mistakes = d.decode(n, &s)
	o.meta = s.ObjectMeta
	o.cidrs, o.conversion = ConvertServiceCIDR(&s)
}

// completeService fills in what the API server would, so that a file may give
// clusterIP alone, clusterIPs alone, or leave out ipFamilies. What is there is
// never changed.
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
		a, problem := parseAddress(text)
		if problem != "" {
			// The conversion reports the address whatever the family says.
			a = netip.IPv4Unspecified()
		}
		s.IPFamilies = append(s.IPFamilies, corev1.IPFamily(model.FamilyOf(a).String()))
	}
}

// completeSlice gives ports without a name the empty one, as the API server
// does; in its own data a missing name means an unused port (2.7).
func completeSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		if s.Ports[i].Name == nil {
			s.Ports[i].Name = new(string)
		}
	}
}
