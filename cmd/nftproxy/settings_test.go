package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
	"github.com/nftproxy/nftproxy/internal/words"
)

// TestSettings walks the rows: every setting can be written as an annotation and as a field,
// and every command that shows settings shows it.
func TestSettings(t *testing.T) {
	schema := fieldsOfSchema(t)
	for _, s := range setting.All {
		t.Run(s.Label, func(t *testing.T) {
			w := settingWalk{t: t, row: s, value: valueOf(s)}
			if s.Annotation != "" {
				w.base, w.with = w.service()
				w.shown()
				w.page("../../docs/annotations.md", s.Annotation)
			}
			if s.Field == "" {
				return
			}
			w.base, w.with = w.balance()
			w.in = words.Balance
			w.shown()
			w.written()
			w.page("../../docs/standalone.md", s.Field)
			if !schema[s.Field] {
				t.Errorf("the schema lacks %s", s.Field)
			}
		})
	}
}

// valueOf returns a value that is not the default.
func valueOf(s *setting.Setting) string {
	if n := len(s.Words); n > 0 {
		return s.Words[n-1]
	}
	return s.Examples[0]
}

// settingWalk looks for one setting: with has it, and base has not.
type settingWalk struct {
	t          *testing.T
	row        *setting.Setting
	in         words.Vocabulary
	value      string
	base, with string
}

// service returns a Service of Kubernetes without and with the annotation.
func (w *settingWalk) service() (base, with string) {
	annotations := map[string]string{}
	if w.row == setting.MaglevSize { // has no effect on others
		annotations[setting.Scheduler.Annotation] = model.Maglev.String()
	}
	text := func() string {
		list, _ := json.Marshal(annotations)
		return fmt.Sprintf(`
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web, annotations: %s}
  spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{port: 80}]
  endpoints: [{addresses: [10.128.0.2]}, {addresses: [10.128.0.3]}]
`, list)
	}
	base = text()
	annotations[w.row.Annotation] = w.value
	return base, text()
}

// balance returns a Balance without and with the field.
func (w *settingWalk) balance() (base, with string) {
	base = bare
	switch w.row {
	case setting.MaglevSize:
		base += "scheduler: maglev\n"
	case setting.ClientAddresses: // the other one is the default
		w.value = model.KeepClientAddresses.String()
	case setting.Timeout:
		base += "relay: true\n"
	}
	value := w.value
	if w.row.Form == setting.List {
		value = "[" + value + "]"
	}
	if field, ok := strings.CutPrefix(w.row.Field, setting.Limits.Field+"."); ok {
		return base, base + fmt.Sprintf("%s: {%s: %s}\n", setting.Limits.Field, field, value)
	}
	return base, base + w.row.Field + ": " + value + "\n"
}

// shown checks that diff, describe and status show the setting.
func (w *settingWalk) shown() {
	w.t.Helper()
	base, with, node := writeFile(w.t, w.base), writeFile(w.t, w.with), writeFile(w.t, node)
	if r := execute("", "validate", "-f", with); r.code != 0 || strings.Contains(r.stdout+r.stderr, "warning") {
		w.t.Errorf("validate: %s%s", r.stdout, r.stderr)
	}
	for format, want := range map[string]string{"text": w.in.Text(w.row.Label), "json": `"` + w.row.Kind + `"`} {
		r := execute("", "diff", "--from", base, "--from", node, "-f", with, "-f", node, "--hostname-override", "node-1", "-o", format)
		if r.code != cli.CodeNo || !strings.Contains(r.stdout, want) && w.row != setting.Ports { // these are frontends
			w.t.Errorf("diff -o %s does not show %s:\n%s%s", format, want, r.stdout, r.stderr)
		}
	}
	describe := func(file, format string) string {
		r := execute("", "describe", "web", "-f", file, "-f", node, "--hostname-override", "node-1", "-o", format)
		if r.code != 0 {
			w.t.Errorf("describe: %s%s", r.stdout, r.stderr)
		}
		return r.stdout
	}
	if text := describe(with, "text"); text == describe(base, "text") || !strings.Contains(text, w.fact()) {
		w.t.Errorf("describe does not show %s:\n%s", w.fact(), text)
	}
	if describe(with, "json") == describe(base, "json") {
		w.t.Error("the JSON of describe does not show it")
	}
	if w.status(w.base) == w.status(w.with) {
		w.t.Error("the JSON of status does not show it")
	}
}

// fact returns what describe prints.
func (w *settingWalk) fact() string {
	switch {
	case w.row == setting.Ports:
		return "udp 10000-20000"
	case w.row == setting.MaglevSize:
		return w.value + " slots" // of the scheduler
	case w.row.Kind == setting.Limits.Kind:
		return setting.Limits.Label + " " // with a line each
	}
	return w.in.Text(w.row.Label) + " "
}

// status returns what a running nftproxy reports about the routes of a text.
func (w *settingWalk) status(text string) string {
	in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
	if err != nil {
		w.t.Fatal(err)
	}
	routing := model.Resolve(in.Snapshot, model.Config{NodeName: "node-1"})
	server := report.New(report.Config{
		Facts: fleetlab.NoFacts{},
		Agent: restingAgent{routing: routing}, Kernel: noAffinity{}, Log: slog.New(slog.DiscardHandler),
	})
	server.Observe(&agent.Sync{Plan: &plan.Plan{}})
	answer := httptest.NewRecorder()
	fleetlab.Handler(server).ServeHTTP(answer, httptest.NewRequest("GET", api.StatusPath, nil))
	return answer.Body.String()
}

// restingAgent has a routing, and nothing to do.
type restingAgent struct {
	report.Agent
	routing *model.Routing
}

func (restingAgent) State() agent.State        { return agent.State{} }
func (a restingAgent) Routing() *model.Routing { return a.routing }

// noAffinity is a kernel that remembers no client.
type noAffinity struct{ report.KernelReader }

func (noAffinity) AffinityUse() ([]kernel.AffinityUse, error) { return nil, nil }
func (noAffinity) Unlimited() ([]counters.Limit, error)       { return nil, nil }

// written checks that new writes the field, and render --objects the annotation.
func (w *settingWalk) written() {
	w.t.Helper()
	value := w.value
	if field, ok := strings.CutPrefix(w.row.Field, setting.Limits.Field+"."); ok {
		value = "{" + field + ": " + value + "}"
	}
	args := []string{"new", "203.0.113.10:443", "10.128.0.2", "--" + w.row.Flag(), value}
	if w.row == setting.Timeout {
		args = append(args, "--relay", "true")
	}
	r := execute("", args...)
	if !strings.Contains(r.stdout, "\n"+strings.SplitN(w.row.Field, ".", 2)[0]+": ") || r.code != 0 {
		w.t.Errorf("new --%s %s: %s%s", w.row.Flag(), value, r.stdout, r.stderr)
	}
	want := w.row.Annotation + ": "
	switch w.row { // Kubernetes has fields for the first ones, and nothing for the others
	case setting.Affinity:
		want = "sessionAffinity: "
	case setting.AllowedClients:
		want = "loadBalancerSourceRanges:"
	case setting.MasqueradeFrom:
		want = "\n" + w.row.Field + ": [" + strings.ReplaceAll(w.value, ",", ", ") + "]"
	case setting.Relay, setting.Timeout, setting.Announce:
		want = "\n" + w.row.Field + ": " + w.value
	}
	if r := execute("", "render", "--objects", "-f", writeFile(w.t, w.with)); !strings.Contains(r.stdout, want) {
		w.t.Errorf("render --objects does not have %s:\n%s%s", want, r.stdout, r.stderr)
	}
}

// page checks that a page names the setting.
func (w *settingWalk) page(path, name string) {
	w.t.Helper()
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "| `"+name+"` |") {
		w.t.Errorf("%s does not name %s (%v)", path, name, err)
	}
}

// fieldsOfSchema returns the paths of the fields in the JSON Schema.
func fieldsOfSchema(t *testing.T) map[string]bool {
	t.Helper()
	type object struct{ Properties map[string]json.RawMessage }
	out := make(map[string]bool)
	var walk func(prefix string, text []byte)
	walk = func(prefix string, text []byte) {
		var o object
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		for name, property := range o.Properties {
			out[prefix+name] = true
			walk(prefix+name+".", property)
		}
	}
	var schema struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(balance.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	walk("", schema.Definitions[balance.Kind])
	return out
}

// TestDescriptionHasNoRule: 1.59, a change of the description changes no rule, and a plan says
// what it is.
func TestDescriptionHasNoRule(t *testing.T) {
	before, after := writeFile(t, bare), writeFile(t, bare+"description: the shop\n")
	r := execute("", "diff", "--from", before, "-f", after, "--hostname-override", "node-1", "-o", "json")
	var plan struct {
		Changes  []any
		Services []struct {
			Details []struct{ Kind, Old, New string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &plan); err != nil || len(plan.Changes) > 0 || len(plan.Services) != 1 {
		t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	if d := plan.Services[0].Details; len(d) != 1 || d[0].Kind != "description" || d[0].Old != "none" || d[0].New != "the shop" {
		t.Errorf("%+v", d)
	}
}
