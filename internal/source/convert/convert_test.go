package convert

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// conversion is a case of a test of a conversion. Objects are what an
// API server would give: nothing is completed.
type conversion struct {
	name   string
	object string   // YAML; fields that are the same in all cases are left out
	want   string   // the fields that are not zero, one a line; empty: nil
	errors []string // in their order, warnings with a leading "warning: "
}

// run converts all cases with the function that convert wraps.
func run[T any](t *testing.T, base string, cases []conversion, convert func(*T) (any, []*manifest.FieldError)) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var object, before T
			for _, into := range []*T{&object, &before} {
				if err := yaml.Unmarshal([]byte(base), into); err != nil {
					t.Fatal(err)
				}
				if err := yaml.Unmarshal([]byte(c.object), into); err != nil {
					t.Fatal(err)
				}
			}
			got, found := convert(&object)
			if diff := cmp.Diff(lines(c.want), lines(sourcetest.Describe(got))); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.errors, sourcetest.Texts(found)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if !reflect.DeepEqual(object, before) {
				t.Error("the object was changed (2.25)")
			}
		})
	}
}

func lines(s string) []string {
	var out []string
	for l := range strings.SplitSeq(strings.TrimSpace(s), "\n") {
		out = append(out, strings.TrimSpace(l))
	}
	return out
}

// TestPlainLabel: names that are not checked further are valid labels.
func TestPlainLabel(t *testing.T) {
	for _, text := range []string{"", "a", "0", "-", "a-", "-a", "a-b", "a.b", "A", "a b", "a_b", "\xff", "é", "a-0-z",
		strings.Repeat("a", 63), strings.Repeat("a", 64)} {
		if got, want := IsPlainLabel(text), len(validation.IsDNS1123Label(text)) == 0; got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
		if IsPlainLabel(text) && len(validation.IsDNS1123Subdomain(text)) > 0 {
			t.Errorf("%q is not a name", text)
		}
	}
}

func TestConvertEndpoints(t *testing.T) {
	run(t, `metadata: {name: web, namespace: default}`, []conversion{
		{"one slice for each subset and family", `
subsets:
- addresses: [{ip: 10.128.0.1, nodeName: n1}, {ip: "fd00::1"}]
  notReadyAddresses: [{ip: 10.128.0.02}]
  ports: [{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}]
- addresses: [{ip: 10.128.0.3}]
  ports: [{port: 80}]`, `
{Namespace:default Name:web/0/IPv4 Service:web Family:IPv4 Ports:[{Name:http Protocol:tcp Port:8080} {Name:dns Protocol:udp Port:53}] Hosts:[{Address:10.128.0.1 Place:n1 Ready:true Serving:true Terminating:false} {Address:10.128.0.2 Place: Ready:false Serving:false Terminating:false}]}
{Namespace:default Name:web/0/IPv6 Service:web Family:IPv6 Ports:[{Name:http Protocol:tcp Port:8080} {Name:dns Protocol:udp Port:53}] Hosts:[{Address:fd00::1 Place: Ready:true Serving:true Terminating:false}]}
{Namespace:default Name:web/1/IPv4 Service:web Family:IPv4 Ports:[{Name: Protocol:tcp Port:80}] Hosts:[{Address:10.128.0.3 Place: Ready:true Serving:true Terminating:false}]}`, nil},
		{"no subsets", ``, ``, nil},
		{"1.36 a bad address does not cost the others", `
subsets: [{addresses: [{ip: nowhere}, {ip: 10.128.0.1}], ports: [{port: 80}]}]`, `
{Namespace:default Name:web/0/IPv4 Service:web Family:IPv4 Ports:[{Name: Protocol:tcp Port:80}] Hosts:[{Address:10.128.0.1 Place: Ready:true Serving:true Terminating:false}]}`,
			[]string{`subsets[0].addresses[0].ip: "nowhere" is not an IP address: write it like 10.96.0.1 or fd00::1`}},
		//lint:ignore SA1019 files may still hold Endpoints
	}, func(e *corev1.Endpoints) (any, []*manifest.FieldError) { return anyOf(Endpoints(e)) })
}

func TestConvertNode(t *testing.T) {
	run(t, `metadata: {name: node-1}`, []conversion{
		{"12.42 InternalIPs come before ExternalIPs", `
metadata: {labels: {topology.kubernetes.io/zone: zone-a}}
spec: {podCIDR: 10.128.1.0/24, podCIDRs: [10.128.1.0/24, "fd00:1::/64"]}
status: {addresses: [{type: ExternalIP, address: 203.0.113.1}, {type: Hostname, address: node-1}, {type: InternalIP, address: 10.0.0.1}, {type: InternalIP, address: "fd00::1"}]}`, `
Name node-1
Zone zone-a
Addresses [10.0.0.1 fd00::1 203.0.113.1]
PodCIDRs [10.128.1.0/24 fd00:1::/64]`, nil},
		{"podCIDR alone, 1.34 with host bits", `spec: {podCIDR: 10.128.1.7/24}`, "Name node-1\nPodCIDRs [10.128.1.0/24]", nil},
		{"12.42 bad addresses are skipped", `status: {addresses: [{type: InternalIP, address: x}, {type: InternalIP, address: 010.0.0.1}]}`,
			"Name node-1\nAddresses [10.0.0.1]",
			[]string{`status.addresses[0].address: "x" is not an IP address: write it like 10.96.0.1 or fd00::1`}},
	}, func(n *corev1.Node) (any, []*manifest.FieldError) { return anyOf(Node(n)) })
}

func TestConvertServiceCIDR(t *testing.T) {
	run(t, `metadata: {name: kubernetes}`, []conversion{
		{"13.9 both families", `spec: {cidrs: [172.30.0.0/16, "fd00:10:96::/112"]}`, "172.30.0.0/16\nfd00:10:96::/112", nil},
		{"1.33 and 1.34", `spec: {cidrs: [172.030.1.2/016]}`, "172.30.0.0/16", nil},
		{"1.36", `spec: {cidrs: [nonsense, 10.96.0.0/12, 0.0.0.0/0]}`, "10.96.0.0/12", []string{
			`spec.cidrs[0]: "nonsense" is not an IP range: write it like 10.0.0.0/8 or fd00::/64`,
			`spec.cidrs[2]: "0.0.0.0/0" holds every address: use the range of the ClusterIPs`}},
	}, func(s *networkingv1.ServiceCIDR) (any, []*manifest.FieldError) { return anyOf(ServiceCIDR(s)) })
}

func anyOf[T any](v T, found []*manifest.FieldError) (any, []*manifest.FieldError) { return v, found }

// TestParseAddress has the forms of 1.33 and 1.35.
func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"172.30.0.041": "172.30.0.41", "10.180.00.001": "10.180.0.1", "192.168.099.022": "192.168.99.22",
		"000.0.0.0": "0.0.0.0", "::ffff:10.0.0.1": "10.0.0.1", "::ffff:10.00.0.01": "10.0.0.1",
		"fd00::0001": "fd00::1", "0:0::1": "::1", "10.0.0.0": "10.0.0.0",
		"": "", "10.0.0": "", "10.0.0.1.1": "", "10.0..1": "", "256.0.0.1": "", "0256.0.0.1": "", " 10.0.0.1": "", "fe80::1%eth0": "", "0x10.0.0.1": "",
	} {
		got, problem := ParseAddress(in)
		if problem == "" && got.String() != want || problem != "" && want != "" {
			t.Errorf("parseAddress(%q) = %s, %q; want %q", in, got, problem, want)
		}
	}
}

// TestParsePrefix has the forms of 1.33, 1.34 and 1.35.
func TestParsePrefix(t *testing.T) {
	for in, want := range map[string]string{
		"203.0.113.000/025": "203.0.113.0/25", "10.20.30.40/16": "10.20.0.0/16", "::ffff:10.0.0.0/104": "10.0.0.0/8",
		"fd00::1/64": "fd00::/64", "0.0.0.0/0": "0.0.0.0/0",
		"": "", "10.0.0.0": "", "10.0.0.0/": "", "10.0.0.0/33": "", "10.0.0.0/-1": "", "10.0.0.0/+8": "", "::/129": "", "::ffff:10.0.0.0/8": "", "fe80::%eth0/64": "",
	} {
		got, problem := ParsePrefix(in)
		if problem == "" && got.String() != want || problem != "" && want != "" {
			t.Errorf("parsePrefix(%q) = %s, %q; want %q", in, got, problem, want)
		}
	}
}

func TestConvertServiceCreated(t *testing.T) {
	var s corev1.Service
	text := `{metadata: {name: web, creationTimestamp: "2024-05-01T12:00:00Z"}, spec: {clusterIP: 10.96.0.1}}`
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	got, _ := Service(&s, "")
	if want := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC); got.Created != want.Unix() || got.Name.Namespace != "default" {
		t.Errorf("created %d in namespace %q, want %d in default", got.Created, got.Name.Namespace, want.Unix())
	}
}

func TestConvertEndpointSlice(t *testing.T) {
	const head = "Namespace default\nName web-1\nService web\nFamily IPv4\n"
	const host = "Hosts [{Address:10.128.0.1 Place: Ready:true Serving:true Terminating:false}]"
	run(t, `
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4`, []conversion{
		{"2.1 of a headless Service", `metadata: {labels: {service.kubernetes.io/headless: ""}}`, "", nil},
		{"2.2 of no Service", `metadata: {labels: {kubernetes.io/service-name: ""}}`, "",
			[]string{`warning: metadata.labels[kubernetes.io/service-name]: missing: the slice belongs to no Service and is not used; label it with the name of its Service`}},
		{"2.2 with any manager", `metadata: {labels: {endpointslice.kubernetes.io/managed-by: me}}`, head, nil},
		{"2.3 IPv6", `{addressType: IPv6, endpoints: [{addresses: ["fd00::1"]}]}`,
			"Namespace default\nName web-1\nService web\nFamily IPv6\nHosts [{Address:fd00::1 Place: Ready:true Serving:true Terminating:false}]", nil},
		{"2.3 FQDN", `{addressType: FQDN, endpoints: [{addresses: [example.com]}]}`, "",
			[]string{`warning: addressType: "FQDN" is not proxied: the slice is not used; give addresses in a slice of type "IPv4" or "IPv6"`}},
		{"2.3 unknown type", `addressType: IPX`, "", []string{`addressType: "IPX" is unknown: use "IPv4" or "IPv6"`}},
		{"2.7 port without name and port with empty name", `ports: [{port: 80}, {name: "", port: 81}]`,
			head + "Ports [{Name: Protocol:tcp Port:81}]",
			[]string{`warning: ports[0].name: missing: the port is not used; name it as in the Service, or ""`}},
		{"2.8 port without number", `{ports: [{name: a}, {name: b, port: 0}, {name: c, port: 82}], endpoints: [{addresses: [10.128.0.1]}]}`,
			head + "Ports [{Name:c Protocol:tcp Port:82}]\n" + host, []string{
				`warning: ports[0].port: missing: the port is not used; give it a number`,
				`ports[1].port: 0 is not a port number: use 1 to 65535`}},
		{"2.9 protocol", `ports: [{name: a, port: 80}, {name: b, port: 80, protocol: SCTP}]`,
			head + "Ports [{Name:a Protocol:tcp Port:80} {Name:b Protocol:sctp Port:80}]", nil},
		{"2.11 first address", `endpoints: [{addresses: [10.128.0.1, 10.128.0.2]}]`, head + host,
			[]string{`warning: endpoints[0].addresses[1]: "10.128.0.2" is not used: only the first address of an endpoint counts; give each address an endpoint of its own`}},
		{"2.11 no address, 2.12 bad address", `endpoints: [{addresses: []}, {addresses: [foo]}, {addresses: [10.128.0.1]}]`, head + host, []string{
			`endpoints[0].addresses: missing: an endpoint needs an address`,
			`endpoints[1].addresses[0]: "foo" is not an IP address: write it like 10.96.0.1 or fd00::1`}},
		{"1.33 leading zeros", `endpoints: [{addresses: [10.128.00.001]}]`, head + host, nil},
		{"2.13 conditions as given", `endpoints: [{addresses: [10.128.0.1], conditions: {ready: false, terminating: true}}]`,
			head + "Hosts [{Address:10.128.0.1 Place: Ready:false Serving:true Terminating:true}]", nil},
		{"2.15 node and 2.16 hints", `endpoints: [{addresses: [10.128.0.1], nodeName: n1, hints: {forZones: [{name: a}, {name: b}], forNodes: [{name: n1}]}}]`,
			head + "Hosts [{Address:10.128.0.1 Place:n1 for zones [a b] nodes [n1] Ready:true Serving:true Terminating:false}]", nil},
	}, func(s *discoveryv1.EndpointSlice) (any, []*manifest.FieldError) {
		return anyOf(EndpointSlice(s))
	})
}
