package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// facts returns what is printed above the path.
func facts(t *testing.T, r *Result) string {
	t.Helper()
	var out strings.Builder
	if err := Print(&out, r, Full, false); err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(out.String(), "\npath\n")
	return text
}

// TestPrintFacts pins the block of facts.
func TestPrintFacts(t *testing.T) {
	full := service()
	full.Services[0].AffinityTimeout = time.Hour
	full.Slices[0].Hosts = append(full.Slices[0].Hosts, model.Host{Address: addr("10.128.3.1"), Place: model.OnNode("node-3")})
	full.Slices[0].Hosts[1].Weight = 2
	other := *full.Services[0]
	other.Name.Name = "other"
	other.ClusterIPs = []netip.Addr{addr("10.96.0.11")}
	other.External = &model.External{ExternalIPs: []netip.Addr{addr("10.96.0.10")}}
	full.Services = append(full.Services, &other)
	for _, c := range []struct {
		snapshot       *model.Snapshot
		question, want string
	}{
		{full, "203.0.113.7 tcp 10.96.0.10:80", `tcp 10.96.0.10:80 from 203.0.113.7: forwarded
  service    default/web:http (ClusterIP)
  endpoints  10.128.1.1:8080   33.3 %  by weight: 1 of 3 slots, number 2
             10.128.2.1:8080   66.7 %  by weight: 2 of 3 slots, number 1, 3
  source     masqueraded by: ip saddr != 10.128.0.0/9 ct original ip daddr @cluster-ips masquerade fully-random
  affinity   the client stays with its endpoint for 1h after its last new connection
  left out   10.128.3.1:8080  not ready
             [fd01::1]:8080   IPv6, and the frontend is IPv4
  conflict   default/other:http (external IP) also claims this frontend, and lost
`},
		{full, "10.128.1.1 tcp 10.96.0.10:80", `tcp 10.96.0.10:80 from 10.128.1.1: forwarded
  service    default/web:http (ClusterIP)
  endpoints  10.128.1.1:8080   33.3 %  by weight: 1 of 3 slots, number 2
             10.128.2.1:8080   66.7 %  by weight: 2 of 3 slots, number 1, 3
  source     masqueraded towards 10.128.1.1:8080 by: ip saddr . ip daddr . meta l4proto . th dport @hairpin masquerade fully-random
             kept towards 10.128.2.1:8080
  affinity   the client stays with its endpoint for 1h after its last new connection
  left out   10.128.3.1:8080  not ready
             [fd01::1]:8080   IPv6, and the frontend is IPv4
  conflict   default/other:http (external IP) also claims this frontend, and lost
`},
		{service(), "203.0.113.7 icmp 10.96.0.10", "icmp 10.96.0.10 from 203.0.113.7: rejected: a ClusterIP answers on the ports of its Service only, and this protocol has none\n"},
	} {
		r := ask(t, c.snapshot, node1, c.question)
		if diff := cmp.Diff(c.want, facts(t, r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.question, diff)
		}
	}
}

// TestPrintPath pins the path: common rules once, then those of each endpoint.
func TestPrintPath(t *testing.T) {
	masquerade := nft.Rule{nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: "ips"}, nft.Masquerade}
	table := tableOf(nft.Rule{drop}[:0], choose(4, 0, "endpoints"))
	table.Chains = append(table.Chains, &nft.Chain{Name: "post", Hook: nft.Postrouting, Rules: []nft.Rule{masquerade, {accept}}})
	table.Chain("base").Rules[0] = nft.Rule{goTo("lane")}
	table.Chains = append(table.Chains, &nft.Chain{Name: "lane", Rules: table.Chain("base").Rules[1:]})
	var out strings.Builder
	if err := Print(&out, Explain(table, from(t, "203.0.113.7 tcp 10.96.0.10:80"), nil), Full, false); err != nil {
		t.Fatal(err)
	}
	want := `tcp 10.96.0.10:80 from 203.0.113.7: forwarded
  endpoints  10.0.0.1:1      50.0 %  by weight: 2 of 4 slots, number 0, 2
             10.0.0.2:2      25.0 %  by weight: 1 of 4 slots, number 1
             10.96.0.10:80   25.0 %  by weight: 1 of 4 slots, number 3
  source     kept towards 10.0.0.1:1, 10.0.0.2:2
             masqueraded towards 10.96.0.10:80 by: ip daddr @ips masquerade fully-random

path
  base
    yes  goto lane
  lane
    yes  meta priority set numgen random mod 4 dnat ip to ip daddr . meta l4proto . th dport . meta priority map @endpoints
         @endpoints: an endpoint for each slot
  to 10.0.0.1:1, 10.0.0.2:2
  post
    no   ip daddr @ips masquerade fully-random
         not in @ips
    yes  accept
  to 10.96.0.10:80
  post
    yes  ip daddr @ips masquerade fully-random
         @ips: 10.96.0.10
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestPrintMany counts what is too much to list.
func TestPrintMany(t *testing.T) {
	s := service()
	s.Slices[0].Hosts[1].Weight = 7
	for i := range 9 {
		s.Slices[0].Hosts = append(s.Slices[0].Hosts, model.Host{Address: netip.AddrFrom4([4]byte{10, 128, 9, byte(i)})})
	}
	r := ask(t, s, node1, "10.128.77.1 tcp 10.96.0.10:80")
	got := facts(t, r)
	for _, want := range []string{"10.128.2.1:8080   87.5 %  by weight: 7 of 8 slots\n", "10.128.9.5:8080  not ready\n", "and 3 more       not ready\n"} {
		if !strings.Contains(got, want) || strings.Contains(got, "10.128.9.6") {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestPrintUnknown names the endpoints even where the rest is not known.
func TestPrintUnknown(t *testing.T) {
	r := ask(t, service(), model.Config{DetectLocal: model.DetectBridgeInterface, PodInterface: "cni0"}, "10.128.9.9 tcp 10.96.0.10:80")
	got := facts(t, r)
	if want := "unknown: a rule depends on the input interface, which is not given\n"; !strings.Contains(got, want) || !strings.Contains(got, "10.128.1.1:8080   50.0 %") {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestPrintMixed prints outcomes of several verdicts.
func TestPrintMixed(t *testing.T) {
	table := tableOf(choose(2, 3, "endpoints"), nft.Rule{drop})
	want := `tcp 10.96.0.10:80 from 203.0.113.7: it depends
  endpoints  dropped: by the rule "drop"   50.0 %  1 of 2 slots, number 4
             10.96.0.10:80                 50.0 %  1 of 2 slots, number 3
  source     kept
`
	if diff := cmp.Diff(want, facts(t, Explain(table, from(t, "203.0.113.7 tcp 10.96.0.10:80"), nil))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestJSONShape reads the JSON back as a program would.
func TestJSONShape(t *testing.T) {
	s := service()
	s.Services[0].AffinityTimeout = time.Hour
	r := ask(t, s, node1, "203.0.113.7 tcp 10.96.0.10:80")
	var out bytes.Buffer
	if err := JSON(&out, r); err != nil {
		t.Fatal(err)
	}
	var got struct {
		From, Protocol, To, Verdict, Service, Kind string
		FromNode                                   bool
		Path                                       []Step
		Outcomes                                   []struct {
			Verdict, Endpoint, Masquerade, Scheduler string
			Share, AffinitySeconds                   float64
			Slots                                    []int
			OfSlots                                  int
			Path                                     []Step
		}
		LeftOut []struct{ Endpoint, Reason string }
	}
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.From != "203.0.113.7" || got.Protocol != "tcp" || got.To != "10.96.0.10:80" || got.Verdict != "forward" || got.Service != "default/web:http" || got.Kind != "ClusterIP" {
		t.Errorf("question and answer are %+v", got)
	}
	if len(got.Outcomes) != 2 || len(got.Path) == 0 || len(got.LeftOut) != 1 {
		t.Fatalf("%d outcomes, %d steps, %d left out", len(got.Outcomes), len(got.Path), len(got.LeftOut))
	}
	if o := got.Outcomes[0]; o.Endpoint != "10.128.1.1:8080" || o.Share != 0.5 || o.AffinitySeconds != 3600 || o.OfSlots != 2 || len(o.Slots) != 1 || o.Masquerade == "" {
		t.Errorf("first outcome is %+v", o)
	}
	if strings.Contains(out.String(), "null") {
		t.Error("null in the JSON")
	}
}

// BenchmarkExplain answers a question about 10,000 services.
func BenchmarkExplain(b *testing.B) {
	s := &model.Snapshot{}
	one := service()
	for i := range 10_000 {
		svc, slice := *one.Services[0], *one.Slices[0]
		svc.Name.Name = fmt.Sprint("web-", i)
		svc.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i / 256), byte(i % 256)})}
		slice.Service = svc.Name.Name
		s.Services, s.Slices = append(s.Services, &svc), append(s.Slices, &slice)
	}
	router := s.Route(node1)
	table := render.Render(router.Routing()).Table(model.IPv4)
	p := Packet{Source: addr("203.0.113.7"), Destination: addr("10.96.20.20"), Protocol: model.TCP, Port: 80}
	b.ReportAllocs()
	for b.Loop() {
		r := Explain(table, p, nil)
		r.AddObjects(router)
		if len(r.Outcomes) != 2 || len(r.LeftOut) != 0 {
			b.Fatal(briefs(r))
		}
	}
}

// TestDetail: without rules of other protocols by default, and without a path if brief.
// TestMaglevFacts names the table, and the slot of a client whose address decides.
func TestMaglevFacts(t *testing.T) {
	for _, c := range []struct {
		scheduler model.Scheduler
		from      string
		want      []string
	}{
		{model.Maglev, "203.0.113.7 tcp 10.96.0.10:80", []string{"scheduler  maglev: slot ", " of 251, by the client's address\n"}},
		{model.MaglevPort, "203.0.113.7 tcp 10.96.0.10:80", []string{" of 251 slots", "scheduler  maglev-port: one of 251 slots, by the client's address and port\n"}},
	} {
		s := service()
		s.Services[0].Scheduler, s.Services[0].Extras = c.scheduler, &model.Extras{MaglevSize: 251}
		r := ask(t, s, node1, c.from)
		got := facts(t, r)
		for _, want := range c.want {
			if !strings.Contains(got, want) || strings.Contains(got, "by weight") {
				t.Errorf("%s, from %s: no %q in\n%s", c.scheduler, c.from, want, got)
			}
		}
		if o := r.Outcomes[0]; o.Scheduler != c.scheduler.String() || o.TableSize != 251 {
			t.Errorf("%s: scheduler %q, table of %d", c.scheduler, o.Scheduler, o.TableSize)
		}
	}
}

// TestTableInBudget: 3.60. The table is the one in use, not the one that the Service asks
// for.
func TestTableInBudget(t *testing.T) {
	s := service()
	s.Services[0].Scheduler, s.Services[0].Extras = model.Maglev, &model.Extras{MaglevSize: 131071}
	if got := ask(t, s, node1, "203.0.113.7 tcp 10.96.0.10:80").Outcomes[0].TableSize; got > budget.MaglevSlots || got < 251 {
		t.Errorf("a table of %d slots", got)
	}
}

func TestDetail(t *testing.T) {
	s := service()
	table := render.Render(model.Resolve(s, node1)).Table(model.IPv4)
	print := func(d Detail) string {
		var out strings.Builder
		if err := Print(&out, Explain(table, from(t, "10.128.77.1 tcp 10.96.0.10:80"), nil), d, false); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, c := range []struct {
		detail        Detail
		with, without []string
	}{
		{Brief, []string{": forwarded\n", "50.0 %\n"}, []string{"\npath\n", "slots"}},
		{Normal, []string{"50.0 %\n", "\npath\n", "rules for other protocols are not listed: --full"}, []string{"slots", "the protocol is tcp", "meta l4proto udp"}},
		{Full, []string{"1 of 2 slots, number 1\n", "\npath\n", "the protocol is tcp", "meta l4proto udp"}, []string{"--full"}},
	} {
		out := print(c.detail)
		for _, want := range c.with {
			if !strings.Contains(out, want) {
				t.Errorf("detail %d: no %q in\n%s", c.detail, want, out)
			}
		}
		for _, unwanted := range c.without {
			if strings.Contains(out, unwanted) {
				t.Errorf("detail %d: %q in\n%s", c.detail, unwanted, out)
			}
		}
	}
}
