package test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// randomService is a Service and its EndpointSlices, drawn at random. Others
// may claim the same frontends.
type randomService struct {
	Name            string
	Families        []model.Family
	ClusterIPs      []netip.Addr // in the order of the families
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr
	SourceRanges    []netip.Prefix
	Internal        string
	External        string
	Annotations     map[string]string
	Ranges          []randomRange
	Affinity        int // in seconds; 0: none
	Ports           []randomPort
	Slices          []randomSlice
}

type randomPort struct {
	Name     string
	Protocol string
	Port     int
	NodePort int // 0: none
}

type randomSlice struct {
	Family    model.Family
	Weight    string       // annotation; empty: none
	Ports     []randomPort // with the port of the endpoints
	Endpoints []randomEndpoint
}

type randomEndpoint struct {
	*netlab.Host
	Conditions   string
	HasNodeName  bool
	Zones, Nodes []string // hints
}

// randomManifest is the YAML of one service.
var randomManifest = template.Must(template.New("random").Parse(`
---
apiVersion: v1
kind: Service
metadata:
  name: {{.Name}}
  namespace: default
  annotations: { {{- range $name, $value := .Annotations}}{{$name}}: "{{$value}}", {{end -}} }
spec:
  type: LoadBalancer
  clusterIP: "{{index .ClusterIPs 0}}"
  clusterIPs: [{{range .ClusterIPs}}"{{.}}", {{end}}]
  ipFamilies: [{{range .Families}}{{.}}, {{end}}]
  externalIPs: [{{range .ExternalIPs}}"{{.}}", {{end}}]
  internalTrafficPolicy: {{.Internal}}
  externalTrafficPolicy: {{.External}}
{{- with .Affinity}}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: {{.}}}}
{{- end}}
  loadBalancerSourceRanges: [{{range .SourceRanges}}"{{.}}", {{end}}]
  ports:
{{- range .Ports}}
  - {name: {{.Name}}, protocol: {{.Protocol}}, port: {{.Port}}, nodePort: {{.NodePort}}}
{{- end}}
status:
  loadBalancer:
    ingress: [{{range .LoadBalancerIPs}}{ip: "{{.}}"}, {{end}}]
{{- $service := .Name}}
{{- range $i, $slice := .Slices}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {{$service}}-{{$i}}
  namespace: default
  labels: {kubernetes.io/service-name: {{$service}}}
{{- with .Weight}}
  annotations: {nftproxy.dev/weight: "{{.}}"}
{{- end}}
addressType: {{.Family}}
ports:
{{- range .Ports}}
- {name: {{.Name}}, protocol: {{.Protocol}}, port: {{.Port}}}
{{- else}} []
{{- end}}
endpoints:
{{- range .Endpoints}}
- addresses: ["{{.Address $slice.Family}}"]
{{- if .HasNodeName}}
  nodeName: {{.NodeName}}
{{- end}}
  conditions: { {{- .Conditions -}} }
  hints:
    forZones: [{{range .Zones}}{name: {{.}}}, {{end}}]
    forNodes: [{{range .Nodes}}{name: {{.}}}, {{end}}]
{{- else}} []
{{- end}}
{{- end}}
`))

// yaml returns the objects as the program reads them.
func (s *randomService) yaml(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	if err := randomManifest.Execute(&out, s); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// seedVariable names the environment variable that repeats a run.
const seedVariable = "NFTPROXY_SEED"

func randomSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(seedVariable)
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}
	return seed
}

// dice makes the choices. A seed decides them all.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 0))} }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// drawOne returns one of several values.
func drawOne[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// drawSome returns up to limit of several values, in any order.
func drawSome[T any](d dice, limit int, of []T) []T {
	var out []T
	for _, i := range d.Perm(len(of))[:d.IntN(min(limit, len(of))+1)] {
		out = append(out, of[i])
	}
	return out
}

// randomWorld is the hosts and addresses that random services use.
type randomWorld struct {
	dice
	hosts []*netlab.Host // that endpoints are on
	names []netip.Addr   // that source ranges may contain
	vips  []netip.Addr   // external IPs and load balancer IPs
}

// services returns n services, with a ClusterIP of each family each, of which
// they use one or both.
func (w *randomWorld) services(n int) []*randomService {
	var out []*randomService
	for i, number := range w.Perm(1<<16 - 2)[:n] {
		ips := map[model.Family]netip.Addr{
			model.IPv4: netip.AddrFrom4([4]byte{10, 96, byte((number + 1) >> 8), byte(number + 1)}),
			model.IPv6: netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", number+1)),
		}
		out = append(out, w.service(fmt.Sprintf("random-%d", i), ips))
		if w.chance(5) { // later services claim it
			w.vips = append(w.vips, ips[model.IPv4], ips[model.IPv6])
		}
	}
	return out
}

func (w *randomWorld) service(name string, ips map[model.Family]netip.Addr) *randomService {
	s := &randomService{
		Name:            name,
		Families:        drawOne(w.dice, []model.Family{4}, []model.Family{6}, []model.Family{4, 6}, []model.Family{6, 4}),
		ExternalIPs:     drawSome(w.dice, 3, w.vips),
		LoadBalancerIPs: drawSome(w.dice, 3, w.vips),
		Internal:        drawOne(w.dice, "Cluster", "Local"),
		External:        drawOne(w.dice, "Cluster", "Local"),
		Ranges:          w.ranges(),
		Affinity:        drawOne(w.dice, 0, 0, 0, 600, 10800),
		Ports:           w.ports(),
	}
	s.Annotations = w.annotations(s.Ranges)
	for _, f := range s.Families {
		s.ClusterIPs = append(s.ClusterIPs, ips[f])
	}
	if w.chance(40) {
		for range 1 + w.IntN(4) {
			s.SourceRanges = append(s.SourceRanges, w.sourceRange())
		}
	}
	for range drawOne(w.dice, 0, 1, 1, 2, 2, 3, 4) {
		s.Slices = append(s.Slices, w.slice(s))
	}
	return s
}

// sourceRange returns a range around one of the names, more or less wide.
func (w *randomWorld) sourceRange() netip.Prefix {
	a := drawOne(w.dice, w.names...)
	p, err := a.Prefix(drawOne(w.dice, 0, 8, 16, a.BitLen()/2, a.BitLen()-8, a.BitLen()-1, a.BitLen()))
	if err != nil {
		panic(err) // a length that no address has
	}
	return p
}

// ports returns one to three ports, of which no two are the same.
func (w *randomWorld) ports() []randomPort {
	var out []randomPort
	type number struct {
		protocol string
		port     int
	}
	taken := make(map[number]bool)
	for i := range 1 + w.IntN(3) {
		p := randomPort{
			Name:     fmt.Sprint("p", i),
			Protocol: drawOne(w.dice, "TCP", "UDP"),
			Port:     drawOne(w.dice, 53, 80, 443, echoPort, 1+w.IntN(1<<16-1), 1+w.IntN(1<<16-1)),
			NodePort: drawOne(w.dice, 0, 30000+w.IntN(2768), 30000+w.IntN(2768)),
		}
		port, nodePort := number{p.Protocol, p.Port}, number{p.Protocol, p.NodePort}
		if !taken[port] && !taken[nodePort] {
			taken[port], taken[nodePort] = true, p.NodePort != 0
			out = append(out, p)
		}
	}
	return out
}

// slice returns endpoints for most ports of a service, mostly in one of its
// families.
func (w *randomWorld) slice(s *randomService) randomSlice {
	out := randomSlice{Family: drawOne(w.dice, s.Families...)}
	if w.chance(5) {
		out.Family = drawOne(w.dice, model.Families[:]...)
	}
	for _, p := range s.Ports {
		if w.chance(90) {
			p.Port = drawOne(w.dice, echoPort, otherEchoPort)
			out.Ports = append(out.Ports, p)
		}
	}
	hints := drawOne(w.dice, 0, 0, 0, 50, 100)
	for _, h := range drawSome(w.dice, 4, w.hosts) {
		out.Endpoints = append(out.Endpoints, w.endpoint(h, hints))
	}
	out.Weight = w.weight(&out)
	return out
}

// endpoint returns an endpoint, which has hints of each kind with a
// probability in per cent.
func (w *randomWorld) endpoint(h *netlab.Host, hints int) randomEndpoint {
	e := randomEndpoint{Host: h, HasNodeName: w.chance(90), Conditions: drawOne(w.dice,
		"", "ready: true", "ready: true, serving: true, terminating: false",
		"ready: false, serving: true, terminating: true",
		"ready: false, serving: false, terminating: false",
		fmt.Sprintf("ready: %t, serving: %t, terminating: %t", w.chance(50), w.chance(50), w.chance(50)))}
	if w.chance(hints) {
		e.Zones = drawOne(w.dice, []string{nodeZone}, []string{"zone-b"}, []string{"zone-b", nodeZone})
	}
	if w.chance(hints) {
		e.Nodes = drawOne(w.dice, nil, []string{nodeName}, []string{"remote"})
	}
	return e
}

// weight returns an annotation: none, one number, or one for each address.
func (w *randomWorld) weight(s *randomSlice) string {
	switch {
	case w.chance(70):
		return ""
	case w.chance(30) || len(s.Endpoints) == 0:
		return fmt.Sprint(w.IntN(4))
	}
	var list []string
	for _, e := range s.Endpoints {
		list = append(list, fmt.Sprintf("%s=%d", e.Address(s.Family), w.IntN(4)))
	}
	return strings.Join(list, ",")
}

// questions draws questions about all services, each once, with the answers.
func (c *comparison) questions() []question {
	c.t.Helper()
	var all []question
	asked := make(map[string]bool)
	for _, s := range c.services {
		for n := 0; n < questionsPerService; {
			q := c.client()
			q.service = s
			q.network, q.to = c.destination(s)
			if q.answer = c.oracle.prediction(c.t, q); !asked[q.String()] && !c.isUnseen(q) {
				all, asked[q.String()] = append(all, q), true
				n++
			}
		}
	}
	return all
}

// isUnseen reports whether a packet takes a path that the laboratory or the
// oracle does not model: to a port of an endpoint without a server, as in a range;
// to an address of no host; from a host to itself, past the node; from the node to
// a pod, which the routes give another address (explain -f knows none); and
// perhaps back to a pod of another node, which meets itself there.
func (c *comparison) isUnseen(q question) bool {
	to := c.host(q.to.Addr())
	isClosed := func(o predictedOutcome) bool {
		return q.answer.Verdict == "forward" && o.Endpoint.Port() != echoPort && o.Endpoint.Port() != otherEchoPort
	}
	switch {
	case slices.ContainsFunc(q.answer.Outcomes, isClosed) || to == nil && q.answer.Verdict == "not ours":
		return true
	case to == q.from:
		return q.from != c.Node
	case q.from == c.Node:
		return to != nil
	}
	return slices.Contains(c.Remote, q.from) && slices.ContainsFunc(q.answer.Outcomes, func(o predictedOutcome) bool {
		return o.Endpoint.Addr() == q.source() && o.Masquerade == ""
	})
}

// client draws the client, of the four kinds.
func (c *comparison) client() question {
	switch c.IntN(4) {
	case 0:
		return question{from: drawOne(c.dice, c.outside...), device: "uplink"}
	case 1:
		return question{from: c.Node}
	}
	pod := drawOne(c.dice, append(slices.Clip(c.Pods), c.Remote...)...)
	return question{from: pod, device: pod.Name}
}

// destination draws the address to dial: mostly a frontend of a service,
// sometimes something near it.
func (c *comparison) destination(s *randomService) (network string, to netip.AddrPort) {
	port := drawOne(c.dice, s.Ports...)
	network = strings.ToLower(port.Protocol)
	own := c.Node.Address(drawOne(c.dice, model.Families[:]...))
	switch n := c.IntN(100); {
	case n < 3: // a port that no service has
		return network, netip.AddrPortFrom(drawOne(c.dice, s.ClusterIPs...), uint16(1+c.IntN(1<<16-1)))
	case n < 6: // an address that hardly any has
		return network, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(c.IntN(256)), 255}), uint16(port.Port))
	case n < 8: // an endpoint itself
		return network, netip.AddrPortFrom(drawOne(c.dice, c.endpointHosts()...).Address(model.FamilyOf(own)), echoPort)
	case n < 12 && len(s.ExternalIPs) > 0: // the same outside of the cluster
		return network, netip.AddrPortFrom(drawOne(c.dice, s.ExternalIPs...), uint16(1+c.IntN(1<<16-1)))
	case n < 30 && port.NodePort != 0:
		return network, netip.AddrPortFrom(own, uint16(port.NodePort))
	case n < 60 && len(s.Ranges) > 0:
		return c.ranged(s)
	}
	all := slices.Clone(s.ClusterIPs)
	for _, a := range slices.Concat(s.ExternalIPs, s.LoadBalancerIPs) {
		if slices.Contains(s.Families, model.FamilyOf(a)) {
			all = append(all, a)
		}
	}
	to = netip.AddrPortFrom(drawOne(c.dice, all...), uint16(port.Port))
	if c.chance(10) {
		return echoNetwork(to.Addr()), netip.AddrPortFrom(to.Addr(), 0)
	}
	return network, to
}
