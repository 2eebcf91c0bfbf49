package report

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/show"
)

// 4.65, 4.67, 4.70: objects say who gets answers to pings, and the rules say the same of
// addresses that are answered for.
func TestPing(t *testing.T) {
	node := &model.Node{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.1")}}
	shared := []netip.Addr{netip.MustParseAddr("203.0.113.20")}
	service := func(name string, created int64, ip string, policy model.Policy) *model.Service {
		return &model.Service{Name: model.ServiceName{Namespace: "shop", Name: name}, Created: created, ClusterIPs: []netip.Addr{netip.MustParseAddr(ip)},
			External: &model.External{LoadBalancerIPs: shared}, ExternalPolicy: policy, Ports: []model.ServicePort{{Protocol: model.TCP, Port: uint16(created)}}}
	}
	endpoint := func(name string) *model.EndpointSlice {
		return &model.EndpointSlice{Namespace: "shop", Name: name, Service: name, Family: model.IPv4, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
			Hosts: []model.Host{{Address: netip.MustParseAddr("10.128.0.1"), Ready: true, Serving: true, Place: model.OnNode("node-2")}}}
	}
	s := &model.Snapshot{Nodes: []*model.Node{node}, Services: []*model.Service{service("web", 1, "10.96.0.10", model.PolicyLocal), service("empty", 2, "10.96.0.11", model.PolicyCluster)},
		Slices: []*model.EndpointSlice{endpoint("web")}}
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node-1", AnswerPing: true}, s.Nodes, nil)
	router.SetServices(s.Update().Services)
	for name, want := range map[string][]string{
		"web": {"10.96.0.10: answered by this node\n", "203.0.113.20: answered by this node inside of the cluster only, because it has no endpoint\n"},
		"empty": {"10.96.0.11: not answered, because no endpoint takes connections\n",
			"203.0.113.20: answered by this node inside of the cluster only, because it has no endpoint; decided by shop/web, which has the same address\n"},
	} {
		objects := FromView(router.View(model.ServiceName{Namespace: "shop", Name: name}))
		var text strings.Builder
		if err := show.Description(&text, objects, time.Now(), false); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("%s: no %q in\n%s", name, w, &text)
			}
		}
		rules := ofRules(render.Render(router.Routing()), model.ServiceName{Namespace: "shop", Name: name})
		answered := slices.DeleteFunc(slices.Clone(objects.Ping), func(p api.Ping) bool { return !p.Inside || p.DecidedBy != "" })
		if !slices.Equal(rules.Ping, answered) {
			t.Errorf("%s: rules say %v, objects %v", name, rules.Ping, answered)
		}
	}
}
