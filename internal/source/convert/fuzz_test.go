package convert

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// FuzzConvert: an object whose fields hold anything gives what the model
// promises, or findings that can be printed. It is not changed, and converting it
// again gives the same (2.25).
func FuzzConvert(f *testing.F) {
	for _, text := range sourcetest.Seeds(f) {
		for _, document := range strings.Split(string(text), "\n---") {
			var list struct{ Items []json.RawMessage }
			object, err := yaml.YAMLToJSON([]byte(document))
			if err != nil {
				continue
			}
			if json.Unmarshal(object, &list) == nil && len(list.Items) > 0 {
				for _, item := range list.Items {
					f.Add([]byte(item))
				}
			} else {
				f.Add(object)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var kind struct{ Kind string }
		if json.Unmarshal(data, &kind) != nil {
			return
		}
		all := &model.Snapshot{}
		switch kind.Kind {
		case "Service":
			if s := convert(t, data, &corev1.Service{}, func(s *corev1.Service) (*model.Service, []*manifest.FieldError) { return Service(s, "") }); s != nil {
				checkService(t, s)
				all.Services = append(all.Services, s)
			}
		case "EndpointSlice":
			if s := convert(t, data, &discoveryv1.EndpointSlice{}, EndpointSlice); s != nil {
				all.Slices = append(all.Slices, s)
			}
		case "Endpoints":
			//lint:ignore SA1019 files may still hold Endpoints
			all.Slices = convert(t, data, &corev1.Endpoints{}, Endpoints)
		case "Node":
			if n := convert(t, data, &corev1.Node{}, Node); n != nil {
				all.Nodes = append(all.Nodes, n)
			}
		case "ServiceCIDR":
			all.ServiceCIDRs = convert(t, data, &networkingv1.ServiceCIDR{}, ServiceCIDR)
		}
		for _, s := range all.Slices {
			checkSlice(t, s)
			// So that it is used.
			all.Services = append(all.Services, &model.Service{
				Name: s.ServiceName(), ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")},
				Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30080}, {Protocol: model.UDP, Port: 53}},
			})
		}
		sourcetest.CheckRules(t, all)
	})
}

// convert reads an object and converts it twice.
func convert[O runtime.Object, V any](t *testing.T, data []byte, object O, f func(O) (V, []*manifest.FieldError)) (none V) {
	t.Helper()
	if json.Unmarshal(data, object) != nil {
		return none
	}
	before := object.DeepCopyObject()
	v, found := f(object)
	again, foundAgain := f(object)
	if !reflect.DeepEqual(v, again) || !reflect.DeepEqual(found, foundAgain) {
		t.Errorf("converted twice: %+v %v, then %+v %v", v, found, again, foundAgain)
	}
	if !reflect.DeepEqual(before, object.DeepCopyObject()) {
		t.Error("the object was changed (2.25)")
	}
	for _, e := range found {
		if !sourcetest.IsPlain(e.Error()) || strings.Contains(e.Error(), "\n") {
			t.Errorf("a finding that cannot be printed: %q", e.Error())
		}
	}
	return v
}

func checkService(t *testing.T, s *model.Service) {
	t.Helper()
	checkName(t, s.Name.Namespace, s.Name.Name)
	families := make(map[model.Family]bool)
	for _, a := range s.ClusterIPs {
		checkUnicast(t, a)
		if families[model.FamilyOf(a)] {
			t.Errorf("two ClusterIPs of one family: %v", s.ClusterIPs)
		}
		families[model.FamilyOf(a)] = true
	}
	var external model.External
	if s.External != nil {
		external = *s.External
	}
	for _, a := range slices.Concat(external.ExternalIPs, external.LoadBalancerIPs) {
		checkUnicast(t, a)
	}
	for _, p := range external.SourceRanges {
		if p != p.Masked() || !p.IsValid() || p.Addr().Is4In6() {
			t.Errorf("source range %v", p)
		}
	}
	seen := make(map[any]bool)
	for _, p := range s.Ports {
		checkPort(t, p.Name, p.Protocol, p.Port)
		keys := []any{p.Name, [2]any{p.Protocol, p.Port}}
		if p.NodePort > 0 {
			keys = append(keys, [3]any{p.Protocol, "node port", p.NodePort})
		}
		for _, key := range keys {
			if seen[key] {
				t.Errorf("two ports have %v: %+v", key, s.Ports)
			}
			seen[key] = true
		}
	}
	if d := s.AffinityTimeout; d < 0 || d > 24*time.Hour || d%time.Second != 0 {
		t.Errorf("affinity of %v", d)
	}
	if s.Scheduler > model.MaglevPort || s.InternalPolicy > model.PolicyLocal || s.ExternalPolicy > model.PolicyLocal {
		t.Errorf("unknown scheduler or policy: %+v", s)
	}
}

func checkSlice(t *testing.T, s *model.EndpointSlice) {
	t.Helper()
	checkName(t, s.Namespace, s.Namespace)
	for _, p := range s.Ports {
		checkPort(t, p.Name, p.Protocol, p.Port)
	}
	for _, h := range s.Hosts {
		if checkUnicast(t, h.Address); model.FamilyOf(h.Address) != s.Family || h.Priority > 9 || h.Weight > Weights.Highest || h.Drain && h.Weight > 0 {
			t.Errorf("host of an %s slice: %+v", s.Family, h)
		}
	}
}

func checkName(t *testing.T, namespace, name string) {
	t.Helper()
	if len(validation.IsDNS1123Label(namespace))+len(validation.IsDNS1123Subdomain(name)) > 0 {
		t.Errorf("names %q and %q", namespace, name)
	}
}

func checkPort(t *testing.T, name string, p model.Protocol, port uint16) {
	t.Helper()
	if port == 0 || p != model.TCP && p != model.UDP && p != model.SCTP || name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		t.Errorf("port %q: %s %d", name, p, port)
	}
}

func checkUnicast(t *testing.T, a netip.Addr) {
	t.Helper()
	if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is4In6() || a.Zone() != "" {
		t.Errorf("address %v", a)
	}
}
