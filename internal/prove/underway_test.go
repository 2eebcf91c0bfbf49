package prove_test

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/prove"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// TestUnderWay: a port moves from a range to a frontend of its own, lists of clients change, or a Service gets more endpoints,
// or has fewer on this node, and another one in a slot of theirs. In one transaction, packets that are under way while the kernel commits it are refused,
// or reach an endpoint that is not for them. The plan's own transactions harm none.
func TestUnderWay(t *testing.T) {
	const endpoints = "addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: "
	objects := func(service, addresses string) *model.Snapshot {
		text := "apiVersion: v1\nkind: Service\n" + service + "\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n" +
			"metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" + endpoints + addresses
		in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text), Keep: true}).Load()
		if err != nil {
			t.Fatal(err)
		}
		return in.Snapshot
	}
	const one, three = "[{addresses: [10.128.0.1]}]", "[{addresses: [10.128.0.1]}, {addresses: [10.128.0.2]}, {addresses: [10.128.0.3]}]"
	inRange := "metadata: {name: web, annotations: {nftproxy.dev/ports: '70-90/tcp, 4000-4999/tcp'}}\nspec: {clusterIP: 10.96.0.10, ports: [{name: more, port: 8000}]}"
	here, elsewhere := "[{addresses: [10.128.0.1], nodeName: node-1}, {addresses: [10.128.0.2], nodeName: node-1}]", "[{addresses: [10.128.0.1], nodeName: node-1}, {addresses: [10.128.0.3], nodeName: node-2}]"
	local := "metadata: {name: web}\nspec: {clusterIP: 10.96.0.10, externalIPs: [192.0.2.10], externalTrafficPolicy: Local, ports: [{name: http, port: 80}]}"
	limited := "metadata: {name: web}\nspec: {type: LoadBalancer, clusterIP: 10.96.0.10, loadBalancerSourceRanges: [198.51.100.0/24], ports: [{name: http, port: 80}]}\n" +
		"status: {loadBalancer: {ingress: [{ip: 192.0.2.20}]}}"
	open := strings.Replace(limited, "loadBalancerSourceRanges: [198.51.100.0/24], ", "", 1)
	listed := strings.Replace(open, "name: web", "name: web, annotations: {nftproxy.dev/source-ranges: 198.51.100.0/24}", 1)
	wide := "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: wide, annotations: {nftproxy.dev/source-ranges: 198.0.0.0/8}}\nspec: {clusterIP: 10.96.0.20, ports: [{name: http, port: 80}]}"
	beside := "\n---\napiVersion: v1\nkind: Service\n" + strings.NewReplacer("name: web", "name: beside, annotations: {nftproxy.dev/ports: 70-90/tcp}", "port: 80", "port: 8000", "0.10", "0.30", "2.20", "2.30").Replace(limited)
	aside := strings.NewReplacer("name: web", "name: web, annotations: {nftproxy.dev/ports: 70-90/tcp}", "port: 80", "port: 8000").Replace(limited)
	wider := strings.NewReplacer("70-90/tcp", "60-90/tcp, nftproxy.dev/source-ranges: 198.51.100.0/24", "loadBalancerSourceRanges: [198.51.100.0/24], ", "").Replace(aside)
	const moved = "[{addresses: [10.128.0.4], nodeName: node-1}, {addresses: [10.128.0.3], nodeName: node-2}]"
	near := "[{addresses: [10.128.0.1], nodeName: node-1, hints: {forNodes: [{name: node-1}]}}, {addresses: [10.128.0.2], nodeName: node-2, hints: {forNodes: [{name: node-1}]}}]"
	far := "[{addresses: [10.128.0.1], nodeName: node-1, hints: {forNodes: [{name: node-2}]}}, {addresses: [10.128.0.3], nodeName: node-2, hints: {forNodes: [{name: node-1}]}}]"
	const another = "[{addresses: [10.128.0.2]}]"
	alone := "metadata: {name: web, annotations: {nftproxy.dev/ports: 4000-4999/tcp}}\nspec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}"
	sticky := "\n---\napiVersion: v1\nkind: Service\n" + strings.NewReplacer("name: web", "name: sticky", "ports:", "sessionAffinity: ClientIP, ports:", "0.10", "0.30", "2.20", "2.30").Replace(open) +
		"\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: sticky-1, labels: {kubernetes.io/service-name: sticky}}\n" + endpoints + one
	for name, c := range map[string]struct {
		before, after *model.Snapshot
		packet        string
	}{
		"a port that moves":            {objects(inRange, one), objects(alone, one), "tcp 10.96.0.10:80 "},
		"another lane":                 {objects(alone, one), objects(alone, three), "tcp 10.96.0.10:80 "},
		"fewer endpoints on this node": {objects(local, here), objects(local, elsewhere), "tcp 192.0.2.10:80 "},
		"fewer, and affinity begins":   {objects(local, here), objects(strings.Replace(local, "ports:", "sessionAffinity: ClientIP, ports:", 1), elsewhere), "tcp 10.96.0.10:80 "},
		"fewer, and affinity ends":     {objects(strings.Replace(local, "ports:", "sessionAffinity: ClientIP, ports:", 1), here), objects(local, moved), "tcp 10.96.0.10:80 "},
		"fewer, in slots of their own": {objects(strings.Replace(local, "ports:", "sessionAffinity: ClientIP, ports:", 1), near), objects(strings.Replace(local, "ports:", "sessionAffinity: ClientIP, ports:", 1), far), "tcp 10.96.0.10:80 "},
		"slots of their own, a limit":  {objects(local, near), objects(strings.Replace(local, "name: web", "name: web, annotations: {nftproxy.dev/max-connections: '1000'}", 1), far), "tcp 10.96.0.10:80 "},
		"the policy becomes Local":     {objects(strings.Replace(local, ", externalTrafficPolicy: Local", "", 1), near), objects(local, far), "tcp 10.96.0.10:80 "},
		"source ranges begin":          {objects(open, one), objects(limited, one), "tcp 192.0.2.20:80 "},
		"source ranges end":            {objects(limited, one), objects(open, one), "tcp 192.0.2.20:80 "},
		"another list of clients":      {objects(limited, one), objects(listed, one), "tcp 192.0.2.20:80 "},
		"one list of two":              {objects(listed+wide, one), objects(limited+wide, one), "tcp 192.0.2.20:80 "},
		"a listed port that moves":     {objects(aside+beside, one), objects(limited+beside, one), "tcp 10.96.0.10:80 "},
		"a range gets another list":    {objects(aside, one), objects(wider, one), "tcp 10.96.0.10:70 "},
		"affinity ends":                {objects(strings.Replace(open, "ports:", "sessionAffinity: ClientIP, ports:", 1)+sticky, one), objects(open+sticky, another), "tcp 10.96.0.10:80 "},
	} {
		t.Run(name, func(t *testing.T) {
			config := model.Config{NodeName: "node-1"}
			current, next := render.Render(model.Resolve(c.before, config)), render.Render(model.Resolve(c.after, config))
			p := plan.Diff(current, next)
			for _, transactions := range [][]*plan.Plan{p.Phases(), {p}} {
				var rules bytecode.Ruleset
				if err := codec.CarryOut(plan.Diff(&nft.Ruleset{}, current), &rules, nil); err != nil {
					t.Fatal(err)
				}
				r := commit(t, transactions, &rules, prove.NewWorld(c.before, config), prove.NewWorld(c.after, config))
				if len(transactions) > 1 {
					checkReport(t, r)
				} else if r.Wrong == 0 || !strings.HasPrefix(r.Examples[0].Class.String(), c.packet) {
					t.Errorf("of one transaction, packets to %s are not wrong: %+v", c.packet, r)
				}
			}
		})
	}
}

// commit carries out transactions, and returns the report of the first that harms packets under way, or of the last.
func commit(t *testing.T, transactions []*plan.Plan, rules *bytecode.Ruleset, before, after *prove.World) (r *prove.Report) {
	t.Helper()
	for i, p := range transactions {
		if r = after.ProveBetween(before, rules); i > 0 && r.Wrong > 0 {
			break
		}
		last := rules.Clone()
		if err := codec.CarryOutPhase(p, rules); err != nil {
			t.Fatal(err)
		}
		if r = after.ProveUnderWay(before, bytecode.NewCommit(last, rules)); r.Wrong > 0 {
			break
		}
	}
	return r
}
