package changes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
)

// planned returns the plan between two inputs, and the Services that change.
func planned(t *testing.T, before, after string) ([]changes.Service, *plan.Plan) {
	t.Helper()
	a, b := parse(t, before), parse(t, after)
	rules := render.Render(a.Routing)
	p := plan.Diff(rules, plan.Settle(rules, render.Render(b.Routing))).WithoutIdleLanes()
	return changes.Count(changes.Objects(a, b), p), p
}

func markdown(t *testing.T, services []changes.Service, p *plan.Plan, elements bool) string {
	t.Helper()
	var b strings.Builder
	if err := changes.Markdown(&b, services, p, elements); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestMarkdown(t *testing.T) {
	services, p := planned(t, node+web, node+strings.Replace(web, "10.0.1.2", "10.0.1.9", 1))
	want := `### nftproxy: 1 Service changed

| Service | | What changes | Established connections |
|---|---|---|---|
| <code>shop/web</code> | changed | dns: 1 endpoint replaced (10.0.1.2:53 → 10.0.1.9:53)<br>http: 1 endpoint replaced (10.0.1.2:8080 → 10.0.1.9:8080) | UDP flows move to another one<br>TCP connections stay with their endpoint |

<details><summary>Rules: 2 to add, 2 to change, 2 to delete.</summary>

` + "```diff" + `
table ip nftproxy
!  map endpoints      10.96.0.12 . tcp . 80 . 0:2 : 10.0.1.2 . 8080 -> 10.0.1.9 . 8080  # shop/web:http
!  map endpoints      10.96.0.12 . udp . 53 . 0:2 : 10.0.1.2 . 53 -> 10.0.1.9 . 53  # shop/web:dns
-  set hairpin        10.0.1.2 . 10.0.1.2 . tcp . 8080
-  set hairpin        10.0.1.2 . 10.0.1.2 . udp . 53
+  set hairpin        10.0.1.9 . 10.0.1.9 . tcp . 8080
+  set hairpin        10.0.1.9 . 10.0.1.9 . udp . 53
` + "```" + `

</details>
`
	if diff := cmp.Diff(want, markdown(t, services, p, true)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := markdown(t, services, p, false); strings.Contains(got, "<details>") || !strings.HasSuffix(got, "|\n\n2 to add, 2 to change, 2 to delete.\n") {
		t.Errorf("without elements:\n%s", got)
	}
	if got := markdown(t, nil, &plan.Plan{}, true); got != "### nftproxy: no changes\n\nNo changes.\n" {
		t.Errorf("nothing: %q", got)
	}
}

// TestMarkdownEscapes: names have no effect on the page, and mention no user.
func TestMarkdownEscapes(t *testing.T) {
	evil := "a|b`c` @team <img src=x> **b** [l](u) #1 ~~s~~ \x1b[2J\n| x |"
	got := markdown(t, []changes.Service{{
		Name: model.ServiceName{Namespace: "shop", Name: evil}, Action: changes.Changed,
		Details: []changes.Detail{{Kind: changes.KindFrontends, Text: evil, Connections: evil}},
	}}, &plan.Plan{Changes: []plan.Change{{}}}, false)
	for _, not := range []string{"@team", "<img", "**", "`c`", "[l]", "~~", "\x1b", " #1"} {
		if strings.Contains(got, not) {
			t.Errorf("%q is in\n%s", not, got)
		}
	}
	rows := strings.Split(got, "\n")
	if row := rows[4]; strings.Count(row, "|") != 5 || !strings.Contains(row, "&lt;img src=x&gt;") || rows[5] != "" {
		t.Errorf("a row of %d cells: %s", strings.Count(row, "|")-1, got)
	}
}

// TestMarkdownLimit: a report of a large change fits into a comment on GitHub, and says
// what it leaves out.
func TestMarkdownLimit(t *testing.T) {
	var before, after strings.Builder
	for i := range 3000 {
		name := fmt.Sprintf("service-%d", i)
		text := strings.NewReplacer("web", name, "10.96.0.12", fmt.Sprintf("10.97.%d.%d", i/250, i%250), "fd00::12", fmt.Sprintf("fd00::1:%x", i)).Replace(web)
		before.WriteString(text)
		after.WriteString(strings.Replace(text, "10.0.1.2", "10.0.1.9", 1))
	}
	services, p := planned(t, before.String(), after.String())
	if len(services) != 3000 {
		t.Fatalf("%d Services", len(services))
	}
	for name, got := range map[string]string{"with": markdown(t, services, p, true), "without": markdown(t, services, p, false)} {
		if n := len(got); n > 60_000 || n < 39_000 {
			t.Errorf("%s elements: %d bytes", name, n)
		}
		if !strings.Contains(got, " Services more** left out here") || strings.Count(got, "\n| <code>") < 100 {
			t.Errorf("%s elements: Services:\n%s", name, got[max(0, len(got)-2000):])
		}
	}
	got := markdown(t, services, p, true)
	if !strings.Contains(got, "lines; the rest is left out") || !strings.HasSuffix(got, "\n</details>\n") || strings.Count(got, "```") != 2 {
		t.Errorf("elements:\n%s", got[len(got)-2000:])
	}
	services, p = planned(t, node, node+cart)
	p.Changes[0].Chain = nil
	for i := range p.Changes {
		if e := p.Changes[i].New; e != nil {
			e.Comment = "a```b"
		}
	}
	if got := markdown(t, services, p, true); !strings.Contains(got, "````diff\n") || !strings.HasSuffix(got, "\n````\n\n</details>\n") {
		t.Errorf("a fence in the rules ends the section:\n%s", got)
	}
}

// TestPrintLimit: the first Services, and the number of others.
func TestPrintLimit(t *testing.T) {
	services, _ := planned(t, node+cart, node+web+rival)
	var b strings.Builder
	changes.Print(&b, services, 1, true)
	want := "\x1b[32m  + shop/api: added, 2 frontends, 1 endpoint; tcp 198.51.100.7:80 moves from shop/cart\x1b[0m\n    and 2 Services more: 1 added, 1 removed\n"
	if b.String() != want {
		t.Errorf("got %q", b.String())
	}
}

// TestElements: a Service whose clients notice nothing is there, too.
func TestElements(t *testing.T) {
	services, p := planned(t, node+cart, node+cart)
	if len(services) != 0 || !p.Empty() {
		t.Errorf("%+v", services)
	}
	p.Changes = append(p.Changes, plan.Change{})
	if got := changes.Count(nil, p); len(got) != 0 {
		t.Errorf("a table is of no Service: %+v", got)
	}
	services, p = planned(t, node+cart, node+strings.Replace(cart, "10.0.0.5", "10.0.0.9", 1))
	if len(services) != 1 || services[0].Elements != 12 { // a slot, and an old and a new member of affinity-endpoints, for each frontend
		t.Errorf("%+v", services)
	}
	if got := printed(t, changes.Count(nil, p)); got != "  ~ shop/cart: 12 elements of the rules, which clients do not notice\n" {
		t.Errorf("%q", got)
	}
}

// TestUnnoticed: 12.67. Services of which clients notice nothing have one line, however many
// they are.
func TestUnnoticed(t *testing.T) {
	before, after := parse(t, node+cart+web), parse(t, node+cart+web)
	counting := *after.Routing
	counting.Counters = true
	was, is := render.Render(before.Routing), render.Render(&counting)
	p := plan.Diff(was, plan.Settle(was, is))
	services := changes.Count(nil, p)
	const want = "  ~ 2 Services: counters of 8 elements of the rules, which clients do not notice\n"
	if got := printed(t, services); got != want || len(services) != 2 {
		t.Errorf("%q", got)
	}
	var b strings.Builder
	if err := changes.Markdown(&b, services, p, false); err != nil || !strings.Contains(b.String(), "| 2 Services | changed | counters of 8 elements of the rules, which clients do not notice | |\n") {
		t.Errorf("%v, %s", err, b.String())
	}
}
