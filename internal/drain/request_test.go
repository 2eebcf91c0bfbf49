package drain

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

var web = model.ServiceName{Namespace: "default", Name: "web"}

// balance returns a Balance that listens at ports, with servers at one port; zero: at the
// ports of clients.
func balance(to uint16, ports []uint16, servers ...string) model.ServiceState {
	s := &model.Service{
		Name: web, Balance: true, NoClusterIP: true,
		External: &model.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.10")}},
	}
	for _, p := range ports {
		s.Ports = append(s.Ports, model.ServicePort{Name: string(rune('a' + len(s.Ports))), Protocol: model.TCP, Port: p})
	}
	slice := &model.EndpointSlice{Namespace: "default", Name: "web-1", Service: "web", Ports: endpointPorts(s, to)}
	for _, text := range servers {
		slice.Hosts = append(slice.Hosts, model.Host{Address: netip.MustParseAddr(text), Ready: true, Serving: true})
	}
	return model.ServiceState{Service: s, Slices: []*model.EndpointSlice{slice}}
}

// print returns for example "10.1.1.2:8080=3 10.1.1.3:8080".
func print(s model.ServiceState) string {
	var out []string
	for _, k := range serversOf(s, nil) {
		text := k.String()
		if k.now != 1 {
			text += "=" + strings.TrimPrefix(weightText(k.now), "weight ")
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// reader is the reader of a source with one Balance.
type reader struct {
	*Store
	state model.ServiceState
}

func newReader(t *testing.T, path string, state model.ServiceState) *reader {
	t.Helper()
	return &reader{Store: NewStore(start(File{Path: path}), slog.New(slog.DiscardHandler)), state: state}
}

// do serves a command line, and returns the servers, or the error.
func (r *reader) do(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	c := Command{Action: words[0]}
	for _, w := range words[1:] {
		switch {
		case strings.HasPrefix(w, "weight="):
			n := int(w[len(w)-1] - '0')
			c.Weight = &n
		case w == "--force":
			c.Force = true
		default:
			c.Server = w
		}
	}
	request, err := ParseRequest(c, "uid 0, pid 1")
	if err != nil {
		return err.Error()
	}
	r.Edit(web, r.state)
	steps, err := r.Do(web, request)
	if err != nil {
		return err.Error()
	}
	edited, _ := r.Changes().Edit(web, r.state)
	if len(steps) == 0 {
		return "unchanged"
	}
	return print(edited)
}

// TestRequests walks through the changes of a Balance (9.37).
func TestRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "drain.yaml")
	r := newReader(t, path, balance(8080, []uint16{80, 443}, "10.1.1.2", "10.1.1.3"))
	for _, step := range []struct{ line, want string }{
		{"set 10.1.1.2 weight=3", "10.1.1.2:8080=3 10.1.1.3:8080"},
		{"set 10.1.1.2:8080 weight=3", "unchanged"},
		{"set 10.1.1.4 weight=3", "server: default/web has no server 10.1.1.4"},
		{"set 10.1.1.2:80 weight=3", "another port: did you mean 10.1.1.2:8080?"},
		{"set 10.1.1.2", "weight: missing"},
		{"set 10.1.1 weight=1", "server: \"10.1.1\" is not a server"},
		{"add 10.1.1.4:8080 weight=2", "10.1.1.2:8080=3 10.1.1.3:8080 10.1.1.4:8080=2"},
		{"add 10.1.1.4:8080", "unchanged"},
		{"add 10.1.1.4:8080 weight=1", "10.1.1.2:8080=3 10.1.1.3:8080 10.1.1.4:8080"},
		{"add 127.0.0.1", "loopback"},
		{"add 203.0.113.10:443", "server: 203.0.113.10:443 is an address and port of default/web itself"},
		{"add 203.0.113.10", "itself"},
		{"add 203.0.113.10:8080", "10.1.1.2:8080=3 10.1.1.3:8080 10.1.1.4:8080 203.0.113.10:8080"},
		{"remove 203.0.113.10:8080", "10.1.1.2:8080=3 10.1.1.3:8080 10.1.1.4:8080"},
		{"add fd00::2", "no address of its family, IPv6"},
		{"remove 10.1.1.3", "10.1.1.2:8080=3 10.1.1.4:8080"},
		{"remove 10.1.1.3", "unchanged"},
		{"set 10.1.1.3 weight=1", "is removed"},
		{"add 10.1.1.3", "10.1.1.2:8080=3 10.1.1.3:8080 10.1.1.4:8080"},
		{"undo 10.1.1.2", "10.1.1.2:8080 10.1.1.3:8080 10.1.1.4:8080"},
		{"remove 10.1.1.4", "10.1.1.2:8080 10.1.1.3:8080"},
		{"set 10.1.1.2 weight=0", "10.1.1.2:8080=0 10.1.1.3:8080"},
		{"remove 10.1.1.3", "no server left that takes connections over IPv4"},
		{"remove 10.1.1.3 --force", "10.1.1.2:8080=0"},
		{"undo", "10.1.1.2:8080 10.1.1.3:8080"},
		{"undo", "unchanged"},
	} {
		if got := r.do(t, step.line); got != step.want && (strings.HasPrefix(step.want, "10.") || !strings.Contains(got, step.want)) {
			t.Errorf("%s: %s, want %s", step.line, got, step.want)
		}
		if l, err := ReadChanges(path, ""); len(r.Changes()) > 0 && (err != nil || !reflect.DeepEqual(l, r.Changes())) {
			t.Errorf("%s: the file has %v, %v; want %v", step.line, l, err, r.Changes())
		}
	}
	if l, err := ReadChanges(path, ""); l.Len() != 0 || err != nil {
		t.Errorf("at the end, the file has %v, %v", l, err)
	}
}

// TestLoopback: a relay reaches a server of the machine itself (9.37), and rules do not.
func TestLoopback(t *testing.T) {
	state := balance(8080, []uint16{80}, "10.1.1.2")
	state.Service.Extras = &model.Extras{Relay: model.PlainRelay}
	r := newReader(t, filepath.Join(t.TempDir(), "c.yaml"), state)
	if got := r.do(t, "add 127.0.0.1:9090"); got != "10.1.1.2:8080 127.0.0.1:9090" {
		t.Error(got)
	}
	if got := r.do(t, "add 169.254.0.1:9090"); !strings.Contains(got, "link-local") {
		t.Error(got)
	}
}

// TestFileWins: an edit of a changed server in the file ends the change, also over a restart;
// other edits do not (9.38).
func TestFileWins(t *testing.T) {
	before := balance(8080, []uint16{80}, "10.1.1.2", "10.1.1.3", "10.1.1.4")
	path := filepath.Join(t.TempDir(), "drain.yaml")
	r := newReader(t, path, before)
	for _, line := range []string{"set 10.1.1.2 weight=3", "remove 10.1.1.3", "add 10.1.1.5:8080"} {
		r.do(t, line)
	}
	weighed := balance(8080, []uint16{80}, "10.1.1.2", "10.1.1.3", "10.1.1.4")
	weighed.Slices[0].Hosts[0].Weight = 2
	for what, c := range map[string]struct {
		file model.ServiceState
		want string
		left int
	}{
		"nothing":         {before, "10.1.1.2:8080=3 10.1.1.4:8080 10.1.1.5:8080", 3},
		"another server":  {balance(8080, []uint16{80}, "10.1.1.2", "10.1.1.3", "10.1.1.9"), "10.1.1.2:8080=3 10.1.1.9:8080 10.1.1.5:8080", 3},
		"the weight":      {weighed, "10.1.1.2:8080=2 10.1.1.4:8080 10.1.1.5:8080", 2},
		"removed":         {balance(8080, []uint16{80}, "10.1.1.3", "10.1.1.4"), "10.1.1.4:8080 10.1.1.5:8080", 2},
		"removed as well": {balance(8080, []uint16{80}, "10.1.1.2", "10.1.1.4"), "10.1.1.2:8080=3 10.1.1.4:8080 10.1.1.5:8080", 2},
		"added as well":   {balance(8080, []uint16{80}, "10.1.1.2", "10.1.1.3", "10.1.1.4", "10.1.1.5"), "10.1.1.2:8080=3 10.1.1.4:8080 10.1.1.5:8080", 2},
	} {
		again := newReader(t, path, c.file)
		if got := print(again.Edit(web, c.file)); got != c.want || again.Changes().Len() != c.left {
			t.Errorf("%s: %s, %d changes; want %s, %d", what, got, again.Changes().Len(), c.want, c.left)
		}
		if got := print(again.Edit(web, c.file)); got != c.want {
			t.Errorf("%s: the second time %s", what, got)
		}
	}
	if gone := r.Edit(web, model.ServiceState{}); gone.Service != nil || r.Changes().Len() != 3 {
		t.Error("a Balance that no file has loses its changes")
	}
}

// TestRanges: servers of a range of ports all keep the ports, or all have the same one.
func TestRanges(t *testing.T) {
	state := balance(0, nil, "10.1.1.2")
	ranges := []model.PortRange{{ServicePort: model.ServicePort{Protocol: model.TCP, Port: 1000}, Last: 2000}}
	state.Service.Extras = &model.Extras{Ranges: ranges}
	r := newReader(t, filepath.Join(t.TempDir(), "c.yaml"), state)
	if got := r.do(t, "add 10.1.1.3"); got != "10.1.1.2 10.1.1.3" {
		t.Error(got)
	}
	if got := r.do(t, "add 10.1.1.4:80"); !strings.Contains(got, "keep the ports of a range: write 10.1.1.4") {
		t.Error(got)
	}
	ranges[0].Target = 53
	r = newReader(t, filepath.Join(t.TempDir(), "c.yaml"), state)
	if got := r.do(t, "add 10.1.1.3"); !strings.Contains(got, "write 10.1.1.3:53") {
		t.Error(got)
	}
	if got := r.do(t, "add 10.1.1.3:53"); got != "10.1.1.2:53 10.1.1.3:53" {
		t.Error(got)
	}
}

// TestBudget: the number of changes is limited, and the ones that exist can still be changed.
func TestBudget(t *testing.T) {
	var servers []string
	for i := range budget.RuntimeChanges + 2 {
		servers = append(servers, netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i%250 + 1)}).String())
	}
	r := newReader(t, filepath.Join(t.TempDir(), "c.yaml"), balance(80, []uint16{80}, servers...))
	many := make([]Change, 0, len(servers))
	for _, s := range servers[:budget.RuntimeChanges] {
		many = append(many, Change{Server: Server{netip.MustParseAddr(s), 80}, Weight: 2, File: 1})
	}
	if _, err := r.file.UpdateAll(func(c Content) (Content, error) { c.Changes = Changes{web: many}; return c, nil }); err != nil {
		t.Fatal(err)
	}
	if got := r.do(t, "set "+servers[len(servers)-1]+" weight=2"); !strings.Contains(got, "there may be no more") {
		t.Error(got)
	}
	if got := r.do(t, "set "+servers[0]+" weight=3"); strings.Contains(got, "may be") {
		t.Error(got)
	}
	if r.Changes().Len() != budget.RuntimeChanges {
		t.Errorf("%d changes", r.Changes().Len())
	}
}

// TestUnusableFile: a file with a mistake changes nothing and is not replaced, until all is undone. Drained endpoints
// stay (9.37).
func TestUnusableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.yaml")
	const drains = "kind: Drain\nendpoints: [{endpoint: 10.1.1.9}]\n"
	for changes, want := range map[string]string{
		"{":                                    "",
		"changes: [{balance: web, server: x}]": "changes[0].server",
		"changes: [{balance: web, server: 10.1.1.2, weight: 1000}]":            "changes[0].weight: 1000 is not a weight",
		"changes: [{balance: web, server: 10.1.1.2, wieght: 1}]":               "wieght: unknown field",
		"changes: [{balance: web, server: 10.1.1.2}]":                          "changes nothing",
		"changes: [{balance: web, server: 10.1.1.2, weight: 1, since: today}]": "changes[0].since",
	} {
		text := drains + changes + "\n"
		if err := errors.Join(os.WriteFile(path+".last", []byte(drains), 0o600), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		r := newReader(t, path, balance(80, []uint16{80}, "10.1.1.2", "10.1.1.3"))
		if p := r.Problem(); p == nil || !strings.Contains(p.Err.Error(), want) || !strings.Contains(p.Err.Error(), "drain.yaml") {
			t.Errorf("%q: %+v, want %s", text, p, want)
		}
		if got := r.do(t, "set 10.1.1.2 weight=2"); !strings.Contains(got, "undo --all") {
			t.Errorf("%q: %s", text, got)
		}
		if now, _ := os.ReadFile(path); string(now) != text {
			t.Errorf("%q was replaced", text)
		}
		if _, err := r.UndoAll(); err != nil || r.do(t, "set 10.1.1.2 weight=2") != "10.1.1.2:80=2 10.1.1.3:80" {
			t.Errorf("%q: after undo --all: %v", text, err)
		}
		if got := start(File{Path: path}).List().names(); got != "10.1.1.9" {
			t.Errorf("%q: after undo --all, %q is drained", text, got)
		}
	}
}

// TestNotKept: a change that cannot be kept is none.
func TestNotKept(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	r := newReader(t, filepath.Join(folder, "drain.yaml"), balance(80, []uint16{80}, "10.1.1.2", "10.1.1.3"))
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // not a directory
		t.Fatal(err)
	}
	if got := r.do(t, "set 10.1.1.2 weight=2"); !strings.Contains(got, "read drain file") || r.Changes().Len() != 0 {
		t.Errorf("%s; %v", got, r.Changes().Texts())
	}
}

// TestNoBalance: 9.37. Servers of a Balance that is not there, or of a Service, are not changed; changes of one that is gone can be undone.
func TestNoBalance(t *testing.T) {
	r := newReader(t, filepath.Join(t.TempDir(), "c.yaml"), balance(80, []uint16{80}, "10.1.1.2", "10.1.1.3"))
	r.do(t, "set 10.1.1.2 weight=2")
	r.do(t, "set 10.1.1.3 weight=2")
	r.state = model.ServiceState{}
	if got := r.do(t, "set 10.1.1.2 weight=3"); got != "balance: there is no Balance default/web" {
		t.Error(got)
	}
	if r.do(t, "undo 10.1.1.2"); strings.Join(r.Changes().Texts(), "; ") != "default/web 10.1.1.3:80: weight 2, in the file 1" {
		t.Error(r.Changes().Texts())
	}
	r.state = balance(80, []uint16{80}, "10.1.1.2")
	r.state.Service.Balance = false
	if got := r.do(t, "set 10.1.1.2 weight=3"); !strings.Contains(got, "is a Service, not a Balance") {
		t.Error(got)
	}
}

// TestSnapshot: dry runs have the changes, as far as the input has the servers as they were.
func TestSnapshot(t *testing.T) {
	state := balance(80, []uint16{80}, "10.1.1.2", "10.1.1.3")
	list := Changes{web: {{Server: Server{netip.MustParseAddr("10.1.1.2"), 80}, Weight: 3, File: 1}, {Server: Server{netip.MustParseAddr("10.1.1.3"), 80}, Weight: 3, File: 2}}}
	s, held := list.EditSnapshot(&model.Snapshot{Services: []*model.Service{state.Service}, Slices: state.Slices})
	if got := print(model.ServiceState{Service: state.Service, Slices: s.Slices}); got != "10.1.1.2:80=3 10.1.1.3:80" || held.Len() != 1 {
		t.Errorf("%s, %v", got, held.Texts())
	}
	if again, err := ChangesOf(list.Entries()); err != nil || !reflect.DeepEqual(again, list) {
		t.Errorf("%v, %v", again, err)
	}
}
