package drain

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

var (
	shopWeb = model.ServiceName{Namespace: "shop", Name: "web"}
	noon    = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
)

// target parses "endpoint" or "endpoint of namespace/name".
func target(t *testing.T, text string) Target {
	t.Helper()
	endpoint, service, found := strings.Cut(text, " of ")
	out, err := ParseEndpoint(endpoint)
	if err == nil && found {
		out.Service, err = ParseService(service)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func list(t *testing.T, texts ...string) (l List) {
	t.Helper()
	for _, text := range texts {
		l = l.With(noon, target(t, text))
	}
	return l
}

func (l List) names() string {
	var out []string
	for _, e := range l {
		out = append(out, e.String())
	}
	return strings.Join(out, ", ")
}

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"10.128.0.2": "10.128.0.2", "10.128.0.2:8080": "10.128.0.2:8080", "fd00::2": "fd00::2", "[fd00::2]": "fd00::2", "[fd00::2]:53": "[fd00::2]:53",
		"::ffff:10.128.0.2": "10.128.0.2", "[::ffff:10.128.0.2]:80": "10.128.0.2:80",
	} {
		if got, err := ParseEndpoint(text); err != nil || got.Endpoint() != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "web", "10.128.0.310", "10.128.0.2:", "10.128.0.2:0", "10.128.0.2:65536", "10.128.0.0/24", "fd00::2:x", "[fd00::2", "fe80::1%eth0", "\x1b[31m"} {
		if got, err := ParseEndpoint(text); err == nil || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// 9.21: the list has no entry that another one includes.
func TestWith(t *testing.T) {
	for _, c := range []struct{ list, add, want string }{
		{"", "10.0.0.2", "10.0.0.2"},
		{"10.0.0.2", "10.0.0.2", "10.0.0.2"},
		{"10.0.0.2", "10.0.0.2:80", "10.0.0.2"},
		{"10.0.0.2:80, 10.0.0.2:81 of shop/web, 10.0.0.3", "10.0.0.2", "10.0.0.2, 10.0.0.3"},
		{"10.0.0.2 of shop/web", "10.0.0.2 of shop/api", "10.0.0.2 of Service shop/api, 10.0.0.2 of Service shop/web"},
		{"10.0.0.2:80 of shop/web", "10.0.0.2 of shop/web", "10.0.0.2 of Service shop/web"},
		{"10.0.0.2:80", "fd00::2", "10.0.0.2:80, fd00::2"},
	} {
		var l List
		if c.list != "" {
			l = list(t, strings.Split(c.list, ", ")...)
		}
		got := l.With(noon.Add(time.Hour), target(t, c.add))
		if got.names() != c.want {
			t.Errorf("%q with %s: %s, want %s", c.list, c.add, got.names(), c.want)
		}
	}
	if l := list(t, "10.0.0.2").With(noon.Add(time.Hour), target(t, "10.0.0.2")); l[0].Since != noon {
		t.Errorf("the time changes: %s", l[0].Since)
	}
}

func TestWithout(t *testing.T) {
	for _, c := range []struct{ list, remove, want, err string }{
		{"10.0.0.2, 10.0.0.3", "10.0.0.2", "10.0.0.3", ""},
		{"10.0.0.2:80, 10.0.0.2:81 of shop/web", "10.0.0.2", "", ""},
		{"10.0.0.2:80, 10.0.0.2:81", "10.0.0.2, 10.0.0.2:80", "", ""},
		{"10.0.0.2:80 of shop/web, 10.0.0.2:80 of shop/api", "10.0.0.2 of shop/web", "10.0.0.2:80 of Service shop/api", ""},
		{"10.0.0.2", "10.0.0.2:80", "", "10.0.0.2:80 is drained as a part of 10.0.0.2: undrain that"},
		{"10.0.0.2:80", "10.0.0.2:81", "", "10.0.0.2:81 is not drained; drained is 10.0.0.2:80"},
		{"10.0.0.2:80", "10.0.0.3", "", `10.0.0.3 is not drained: "nftproxy drain --list" shows what is`},
		{"", "10.0.0.3", "", "10.0.0.3 is not drained: nothing is"},
	} {
		var l List
		if c.list != "" {
			l = list(t, strings.Split(c.list, ", ")...)
		}
		var remove []Target
		for _, text := range strings.Split(c.remove, ", ") {
			remove = append(remove, target(t, text))
		}
		got, err := l.Without(words.Kubernetes, remove...)
		if got.names() != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%q without %s: %q, %v; want %q, %q", c.list, c.remove, got.names(), err, c.want, c.err)
		}
	}
}

func TestFileRoundTrip(t *testing.T) {
	l := list(t, "10.0.0.2", "10.0.0.3:80 of shop/web", "fd00::2", "[fd00::3]:53")
	got, problems := parse("drain.yaml", []byte(Content{Drained: l}.text()))
	if len(problems) > 0 || !slices.Equal(got.Drained, l) {
		t.Errorf("%v, %v\n%s", got, problems, Content{Drained: l}.text())
	}
	if got, problems = parse("drain.yaml", []byte(Content{}.text())); len(problems) > 0 || len(got.Drained) > 0 {
		t.Errorf("empty: %v, %v", got, problems)
	}
}

// 9.22: a drain file is read strictly, and each problem has its place.
func TestBrokenFiles(t *testing.T) {
	for text, want := range map[string]string{
		"kind: Drain\nendpoints: [{endpont: 10.0.0.2}]": `drain.yaml: document 1 (line 2): endpoints[0].endpont: unknown field: did you mean endpoint?`,
		"kind: Service":               "is not a drain file",
		"endpoints: []":               "is not a drain file",
		"kind: Drain\napiVersion: v1": "is not a drain file",
		"kind: Drain\nendpoints:\n- endpoint: 10.0.0.300":                     `(line 3): endpoints[0].endpoint: "10.0.0.300" is not an endpoint`,
		"kind: Drain\nendpoints:\n- {endpoint: 10.0.0.2, service: a/b/c}":     `endpoints[0].service: "a/b/c" is not the name of a Service`,
		"kind: Drain\nendpoints:\n- {endpoint: 10.0.0.2, since: today}":       `endpoints[0].since: "today" is not a time`,
		"kind: Drain\nendpoints:\n- endpoint: 10.0.0.2\n- endpoint: 10.0.0.2": "(line 4): endpoints[1].endpoint: is drained already by an entry above",
		"kind: Drain\n---\nkind: Drain":                                       "a second document",
		"kind: Drain\n\tendpoints: []":                                        "a tab",
		"kind: [":                                                             "drain.yaml",
		"text":                                                                "is not a drain file",
		"[1]":                                                                 "is not a drain file",
		"":                                                                    "drain.yaml: has no list: it is most likely being written",
		"# Endpoints that take\n":                                             "has no list",
		"---\n":                                                               "has no list",
		"null":                                                                "has no list",
		"kind: Drain":                                                         "endpoints: missing: if no endpoint is drained, write []",
		"kind: Drain\nendpoints:\n":                                           "endpoints: missing",
	} {
		if l, problems := parse("drain.yaml", []byte(text)); len(problems) == 0 || !strings.Contains(problems.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, l, problems, want)
		}
	}
	for _, text := range []string{"kind: Drain\nendpoints: []", "{\"kind\": \"Drain\", \"endpoints\": []}", "apiVersion: nftproxy.dev/v1alpha1\nkind: Drain\nendpoints: []"} {
		if l, problems := parse("drain.yaml", []byte(text)); len(problems) > 0 || len(l.Drained) > 0 {
			t.Errorf("%q: %v, %v", text, l, problems)
		}
	}
}

// 9.22: writers take turns, so that no entry is lost, and readers see whole files.
func TestUpdateConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "drain.yaml")
	done := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if _, err := (File{Path: path}).Read(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range 20 {
		writers.Go(func() {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			if _, err := (File{Path: path}).Update(func(l List) (List, error) { return l.With(noon, Target{Address: a}), nil }); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	if l, err := (File{Path: path}).Read(); err != nil || len(l) != 20 {
		t.Errorf("%d entries, %v, want 20", len(l), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("permissions %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 1 || left[0] != lockOf(path) {
		t.Errorf("left behind: %v", left)
	}
}

func TestUpdateErrors(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "drain.yaml")
	broken := "kind: Drain\nendpoints: 3"
	if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	add := func(l List) (List, error) { return l.With(noon, target(t, "10.0.0.2")), nil }
	if _, err := (File{Path: path}).Update(add); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file: %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != broken {
		t.Errorf("a broken file was replaced: %s", got)
	}
	refused := errors.New("no")
	if _, err := (File{Path: filepath.Join(folder, "other.yaml")}).Update(func(List) (List, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "other.yaml")); err == nil {
		t.Error("a refused change was written")
	}
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("kind: Drain\nendpoints: []"), 0o600), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := (File{Path: link}).Update(add); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link was replaced: %s, %v", to, err)
	}
	if l, err := (File{Path: path}).Read(); err != nil || len(l) != 1 {
		t.Errorf("behind the link: %v, %v", l, err)
	}
}

// lockOf returns the file that an update of a drain file locks.
func lockOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
}

func TestUpdateWaitsForLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "drain.yaml")
		unlock, err := lock(lockOf(path))
		if err != nil {
			t.Fatal(err)
		}
		updated := make(chan error, 1)
		go func() {
			_, err := File{Path: path}.Update(func(l List) (List, error) { return list(t, "10.0.0.2"), nil })
			updated <- err
		}()
		time.Sleep(lockTimeout / 2)
		synctest.Wait()
		if len(updated) > 0 {
			t.Errorf("the lock does not hold: %v", <-updated)
		}
		unlock()
		if err := <-updated; err != nil {
			t.Error(err)
		}
	})
}

// 9.22: a user who can read the directory and the list cannot keep others from changing it.
func TestLockOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.yaml")
	add := func(l List) (List, error) { return l.With(noon, target(t, "10.0.0.2")), nil }
	if _, err := (File{Path: path}).Update(add); err != nil {
		t.Fatal(err)
	}
	for _, readable := range []string{filepath.Dir(path), path} {
		f, err := os.Open(readable)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (File{Path: path}).Update(func(List) (List, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(lockOf(path)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("permissions %v, %v: others can lock it", info.Mode(), err)
	}
}

// slice returns a slice with hosts 10.0.0.1 to 10.0.0.n.
func slice(name string, n int, ports ...uint16) *model.EndpointSlice {
	s := &model.EndpointSlice{Namespace: "shop", Name: name, Service: "web", Family: model.IPv4}
	for _, p := range ports {
		s.Ports = append(s.Ports, model.EndpointPort{Name: fmt.Sprint(p), Protocol: model.TCP, Port: p})
	}
	for i := range n {
		s.Hosts = append(s.Hosts, model.Host{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), Ready: true, Serving: true})
	}
	return s
}

// drained returns the drained endpoints of a state.
func drained(s model.ServiceState) string {
	var out []string
	for _, p := range []uint16{80, 81} {
		for _, e := range model.Endpoints(model.PortName{Service: shopWeb, Port: fmt.Sprint(p), Protocol: model.TCP}, model.IPv4, s.Slices) {
			if e.Host.DrainedByOperator() {
				out = append(out, e.Address().String())
			}
		}
	}
	return strings.Join(out, " ")
}

// 9.20: an entry concerns all ports of an address or one, in all Services or in one.
func TestEdit(t *testing.T) {
	for entries, want := range map[string]string{
		"10.0.0.2":              "10.0.0.2:80 10.0.0.2:81",
		"10.0.0.2:81":           "10.0.0.2:81",
		"10.0.0.1:80, 10.0.0.2": "10.0.0.1:80 10.0.0.2:80 10.0.0.2:81",
		"10.0.0.2:82":           "",
		"10.0.0.9":              "",
		"fd00::1":               "",
		"10.0.0.2 of shop/web":  "10.0.0.2:80 10.0.0.2:81",
		"10.0.0.2 of shop/api":  "",
		"10.0.0.2:80 of shop/web, 10.0.0.2 of a/b": "10.0.0.2:80",
	} {
		for _, state := range []model.ServiceState{
			{Service: &model.Service{Name: shopWeb}, Slices: []*model.EndpointSlice{slice("a", 3, 80, 81)}},
			{Service: &model.Service{Name: shopWeb}, Slices: []*model.EndpointSlice{slice("a", 3, 80), slice("b", 3, 81)}},
		} {
			got := list(t, strings.Split(entries, ", ")...).Edit(shopWeb, state)
			if drained(got) != want {
				t.Errorf("%s: %s, want %s", entries, drained(got), want)
			}
			if drained(state) != "" {
				t.Errorf("%s: the argument was modified", entries)
			}
			for _, p := range []string{"80", "81"} {
				if n := len(model.Endpoints(model.PortName{Service: shopWeb, Port: p, Protocol: model.TCP}, model.IPv4, got.Slices)); n != 3 {
					t.Errorf("%s: port %s has %d endpoints, want 3", entries, p, n)
				}
			}
		}
	}
}

// 9.20: an entry with a port does not concern ranges of ports, whose endpoints have any,
// and an entry without one does, also if slices have no ports.
func TestEditRanges(t *testing.T) {
	wide := &model.Service{Name: shopWeb, Extras: &model.Extras{Ranges: []model.PortRange{{ServicePort: model.ServicePort{Name: "1000-2000/tcp"}}}}}
	for _, c := range []struct {
		entries string
		slices  []*model.EndpointSlice
		want    string // the ports, and the hosts of the range
	}{
		{"10.0.0.2", []*model.EndpointSlice{slice("a", 3)}, "; 10.0.0.2"},
		{"10.0.0.2:80", []*model.EndpointSlice{slice("a", 3)}, "; "},
		{"10.0.0.2", []*model.EndpointSlice{slice("a", 3, 80)}, "10.0.0.2:80; 10.0.0.2"},
		{"10.0.0.2:80", []*model.EndpointSlice{slice("a", 3, 80)}, "10.0.0.2:80; "},
		{"10.0.0.2:80, 10.0.0.2:81", []*model.EndpointSlice{slice("a", 3, 80, 81)}, "10.0.0.2:80 10.0.0.2:81; "},
		{"10.0.0.2:80, 10.0.0.3", []*model.EndpointSlice{slice("a", 3, 80, 81)}, "10.0.0.2:80 10.0.0.3:80 10.0.0.3:81; 10.0.0.3"},
		{"10.0.0.2:81, 10.0.0.2:80", []*model.EndpointSlice{slice("a", 3, 80), slice("b", 3, 81)}, "10.0.0.2:80 10.0.0.2:81; "},
	} {
		entries, port := list(t, strings.Split(c.entries, ", ")...), model.PortName{Service: shopWeb, Port: "1000-2000/tcp", Protocol: model.TCP}
		whole := entries.EditSnapshot(&model.Snapshot{Services: []*model.Service{wide}, Slices: c.slices})
		one := entries.Edit(shopWeb, model.ServiceState{Service: wide, Slices: c.slices})
		for _, got := range []model.ServiceState{one, {Slices: whole.Slices}} {
			var hosts []string
			endpoints := model.Endpoints(port, model.IPv4, got.Slices)
			for _, e := range endpoints {
				if e.Host.DrainedByOperator() {
					hosts = append(hosts, e.Host.Address.String())
				}
			}
			if text := drained(got) + "; " + strings.Join(hosts, " "); text != c.want || len(endpoints) != 3 {
				t.Errorf("%s: %s of %d, want %s", c.entries, text, len(endpoints), c.want)
			}
		}
	}
}

// A host of weight 0 is not given one by a drain that ends again, and keeps its reason.
func TestEditWeights(t *testing.T) {
	s := slice("a", 2, 80)
	s.Hosts[0].Drain = true
	s.Hosts[1].Weight = 7
	edited := list(t, "10.0.0.1", "10.0.0.2").Edit(shopWeb, model.ServiceState{Slices: []*model.EndpointSlice{s}}).Slices[0]
	if h := edited.Hosts[0]; h.Weight != 0 || !h.Drain || h.DrainedByOperator() {
		t.Errorf("weight 0: %+v", h)
	}
	if h := edited.Hosts[1]; h.Weight != 7 || !h.DrainedByOperator() {
		t.Errorf("weight 7: %+v", h)
	}
}

// A state without a drained endpoint costs no copy, nor does a removed Service.
func TestEditUnconcerned(t *testing.T) {
	state := model.ServiceState{Slices: []*model.EndpointSlice{slice("a", 1000, 80)}}
	l := list(t, "10.9.0.1")
	if got := l.Edit(shopWeb, state); got.Slices[0] != state.Slices[0] || testing.AllocsPerRun(10, func() { l.Edit(shopWeb, state) }) > 0 {
		t.Error("it is copied")
	}
	if got := l.Edit(shopWeb, model.ServiceState{}); got.Service != nil || got.Slices != nil {
		t.Errorf("%+v", got)
	}
}

// TestClearOnlyDrainFiles: a file of another kind stays, whatever its mode; a list with mistakes goes.
func TestClearOnlyDrainFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.yaml")
	for content, ours := range map[string]bool{
		"": true, " \n": true, "kind: Drain\nendpoints: [": true, "apiVersion: x\n\"kind\": \"Drain\"\n": true, `{"kind":"Drain","endpoints":[{}`: true, header + "kind: [": true,
		"precious=1\n": false, "kind: Balance\nname: web\n": false, "root:x:0:0\n": false, "kind: Drainage\n": false, "# kind: Drain\n[Unit]\n": false,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (File{Path: path}).Clear()
		got, errRead := os.ReadFile(path)
		if ours != (err == nil) || errRead != nil || !ours && (string(got) != content || !strings.Contains(err.Error(), "is not a drain file, and stays as it is")) {
			t.Errorf("%q: %v, becomes %q", content, err, got)
		}
	}
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := (File{Path: path}).Clear(); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
}
