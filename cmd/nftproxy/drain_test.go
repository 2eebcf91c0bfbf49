package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// drainLab is a running nftproxy that balances over three pods, in both families, with a
// Service of the same endpoints that has session affinity.
type drainLab struct {
	*netlab.Lab
	t    *testing.T
	file string
}

var webAddresses = map[model.Family]netip.AddrPort{
	model.IPv4: netip.MustParseAddrPort("10.96.0.10:80"), model.IPv6: netip.MustParseAddrPort("[fd00:10:96::10]:80"),
}

var stickyAddresses = map[model.Family]netip.AddrPort{
	model.IPv4: netip.MustParseAddrPort("10.96.0.11:80"), model.IPv6: netip.MustParseAddrPort("[fd00:10:96::11]:80"),
}

func newDrainLab(t *testing.T) *drainLab {
	t.Helper()
	lab := netlab.TestLab(t, 3)
	if err := lab.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	return &drainLab{lab, t, filepath.Join(t.TempDir(), "state", "drain.yaml")}
}

// input returns the Services shop/web and shop/sticky.
func (l *drainLab) input() string {
	var b strings.Builder
	for name, at := range map[string]map[model.Family]netip.AddrPort{"web": webAddresses, "sticky": stickyAddresses} {
		affinity := "None"
		if name == "sticky" {
			affinity = "ClientIP"
		}
		fmt.Fprintf(&b, `
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: shop}
spec:
  clusterIP: %[2]s
  clusterIPs: ["%[2]s", "%[3]s"]
  ipFamilies: [IPv4, IPv6]
  sessionAffinity: %[4]s
  ports: [{name: tcp, port: 80}, {name: udp, port: 80, protocol: UDP}]
---
`, name, at[model.IPv4].Addr(), at[model.IPv6].Addr(), affinity)
		for _, f := range model.Families {
			var hosts []string
			for _, p := range l.Pods {
				hosts = append(hosts, fmt.Sprintf(`{addresses: ["%s"]}`, p.Address(f)))
			}
			fmt.Fprintf(&b, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, namespace: shop, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{name: tcp, port: 8080}, {name: udp, port: 8080, protocol: UDP}]
endpoints: [%s]
---
`, name, strings.ToLower(f.String()), name, f, strings.Join(hosts, ", "))
		}
	}
	return b.String()
}

func (l *drainLab) start(args ...string) *process {
	l.t.Helper()
	return l.startWith(l.input(), args...)
}

// startWith runs nftproxy with these objects.
func (l *drainLab) startWith(objects string, args ...string) *process {
	l.t.Helper()
	p := startCommand(l.t, l.Node.Namespace, asNftproxy(l.t, append([]string{"run", "-f", writeFile(l.t, objects), "--drain-file", l.file, "--metrics-bind-address", "127.0.0.1:7011"}, args...)...))
	eventually(l.t, "the first sync", func() bool {
		_, text := get(l.t, l.Node.Namespace, "http://127.0.0.1:7011"+api.DrainPath)
		return strings.Contains(text, `"pending":false`)
	})
	return p
}

// stop ends nftproxy.
func (l *drainLab) stop(p *process) {
	l.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		l.t.Fatal(err)
	}
	p.ends(l.t, 0)
}

// run runs a command on the node.
func (l *drainLab) run(args ...string) result {
	l.t.Helper()
	if strings.HasSuffix(args[0], "drain") && !slices.Contains(args, "--drain-file") {
		args = append(args, "--drain-file", l.file)
	}
	return ask(l.t, l.Node.Namespace, append(args, "--metrics-bind-address", "127.0.0.1:7011")...)
}

// succeeds runs a command that must succeed and returns its output.
func (l *drainLab) succeeds(args ...string) string {
	l.t.Helper()
	r := l.run(args...)
	if r.code != 0 || r.stderr != "" {
		l.t.Fatalf("%s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// answering returns the pods that answer n new connections.
func (l *drainLab) answering(n int, network string, to netip.AddrPort) map[string]int {
	l.t.Helper()
	out := make(map[string]int)
	for range n {
		a, err := l.Client.Ask(network, to, 0)
		if err != nil {
			l.t.Fatal(err)
		}
		out[a.Name]++
	}
	return out
}

// openTo opens flows until one leads to a pod, and keeps that.
func (l *drainLab) openTo(pod, network string, to netip.AddrPort) *netlab.Flow {
	l.t.Helper()
	for range 50 {
		f, err := l.Client.Open(network, to, 0)
		if err != nil {
			l.t.Fatal(err)
		}
		a, err := f.Ask()
		if err != nil {
			l.t.Fatal(err)
		}
		if a.Name == pod {
			l.t.Cleanup(func() { _ = f.Close() })
			return f
		}
		_ = f.Close()
	}
	l.t.Fatalf("%s answers none of 50 flows", pod)
	return nil
}

// 9.20, 9.24: under load, one of three endpoints is drained, loses its connections one by
// one, and returns: no request fails, new connections go to the others, and those that
// exist stay.
func TestDrainUnderLoad(t *testing.T) {
	l := newDrainLab(t)
	l.start()
	pod := l.Pods[1]
	kept := map[string]*netlab.Flow{}
	for _, f := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			kept[network+" "+f.String()] = l.openTo(pod.Name, network, webAddresses[f])
		}
	}
	stop := l.load()
	out := l.succeeds("drain", pod.IPv4.String(), pod.IPv6.String())
	for _, want := range []string{
		regexp.QuoteMeta(pod.IPv4.String()) + " is drained: no new connections; open: [1-9][0-9]* TCP, [1-9][0-9]* UDP", pod.IPv6.String() + " is drained: no new connections; open: [1-9][0-9]* TCP, [1-9][0-9]* UDP",
		"  Service shop/sticky: 2 of 3 endpoints left\n  Service shop/web: 2 of 3 endpoints left\n",
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the answer lacks %q:\n%s", want, out)
		}
	}
	eventually(t, "the end of all connections but those that are kept", func() bool {
		return strings.Count(l.succeeds("drain"), " 1 TCP, ") == len(model.Families)
	})
	for _, f := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			if got := l.answering(20, network, webAddresses[f]); got[pod.Name] > 0 || len(got) != 2 {
				t.Errorf("%s over %s: %v", network, f, got)
			}
		}
	}
	if out := l.succeeds("describe", "shop/web", "--connections"); len(regexp.MustCompile(` 1 +drained by nftproxy drain`).FindAllString(out, -1)) < 2 {
		t.Errorf("describe --connections:\n%s", out)
	}
	for name, flow := range kept {
		if a, err := flow.Ask(); err != nil || a.Name != pod.Name {
			t.Errorf("%s: the connection does not stay: %v, %v", name, a, err)
		}
	}
	l.succeeds("undrain", pod.IPv4.String(), pod.IPv6.String())
	for _, f := range model.Families {
		if got := l.answering(30, "tcp", webAddresses[f]); got[pod.Name] == 0 {
			t.Errorf("after undrain, over %s: %v", f, got)
		}
	}
	if failed, made := stop(); failed > 0 || made < 100 {
		t.Errorf("%d of %d requests failed", failed, made)
	}
}

// load makes requests until stop is called.
func (l *drainLab) load() (stop func() (failed, made int64)) {
	var failed, made atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	for _, f := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			clients.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if _, err := l.Client.Ask(network, webAddresses[f], 0); err != nil {
						failed.Add(1)
					}
					made.Add(1)
				}
			})
		}
	}
	return func() (int64, int64) {
		close(done)
		clients.Wait()
		return failed.Load(), made.Load()
	}
}

// 9.20: clients with session affinity move with their next connection, also those that
// were bound to the drained endpoint, and stay where they went.
func TestDrainMovesStickyClients(t *testing.T) {
	l := newDrainLab(t)
	l.start()
	for _, f := range model.Families {
		first, err := l.Client.Ask("tcp", stickyAddresses[f], 0)
		if err != nil {
			t.Fatal(err)
		}
		var bound *netlab.Host
		for _, p := range l.Pods {
			if p.Name == first.Name {
				bound = p
			}
		}
		kept := l.openTo(bound.Name, "tcp", stickyAddresses[f])
		l.succeeds("drain", bound.Address(f).String())
		got := l.answering(10, "tcp", stickyAddresses[f])
		if got[bound.Name] > 0 || len(got) != 1 {
			t.Errorf("%s: bound to %s, then %v, want one other endpoint", f, bound.Name, got)
		}
		if a, err := kept.Ask(); err != nil || a.Name != bound.Name {
			t.Errorf("%s: the connection does not stay: %v, %v", f, a, err)
		}
		l.succeeds("undrain", "--all")
	}
}

// 9.24: the command waits for the last connection, and reports those that are left.
func TestDrainWaits(t *testing.T) {
	l := newDrainLab(t)
	l.start()
	pod := l.Pods[0]
	flow := l.openTo(pod.Name, "tcp", webAddresses[model.IPv4])
	other := l.openTo(pod.Name, "tcp", stickyOrWeb(l, pod))
	if r := l.run("drain", pod.IPv4.String(), "--service", "shop/web", "--wait", "--timeout", "10ms"); r.code != cli.CodeNo ||
		!strings.Contains(r.stderr, "connections are still open: 1 TCP to "+pod.IPv4.String()+" of Service shop/web") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	done := make(chan result)
	go func() { done <- l.run("drain", pod.IPv4.String(), "--service", "shop/web", "--wait", "-o", "json") }()
	await.Span(100 * time.Millisecond)
	select {
	case r := <-done:
		t.Errorf("it does not wait: %s%s", r.stdout, r.stderr)
	default:
	}
	if err := flow.Close(); err != nil {
		t.Fatal(err)
	}
	r := await.Receive(t, done, "end of the command after the last connection")
	var got api.DrainResult
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 || len(got.Endpoints) != 1 {
		t.Fatalf("%v, exit code %d: %s%s", err, r.code, r.stdout, r.stderr)
	}
	if e := got.Endpoints[0]; !e.Drained || e.Open == nil || e.Open.Total != 0 || len(e.Services) != 1 || e.Services[0] != (api.DrainedService{ServiceText: model.ServiceText{Service: "shop/web"}, Endpoints: 3, Left: 2}) {
		t.Errorf("%+v", e)
	}
	if a, err := other.Ask(); err != nil || a.Name != pod.Name {
		t.Errorf("a connection of the other Service: %v, %v", a, err)
	}
}

// stickyOrWeb returns an address of shop/sticky at which the client is bound to a pod: it
// drains the others until it is.
func stickyOrWeb(l *drainLab, pod *netlab.Host) netip.AddrPort {
	l.t.Helper()
	for _, p := range l.Pods {
		if p != pod {
			l.succeeds("drain", p.IPv4.String(), "--service", "shop/sticky")
		}
	}
	l.answering(1, "tcp", stickyAddresses[model.IPv4])
	l.succeeds("undrain", "--all")
	return stickyAddresses[model.IPv4]
}

// 9.21 to 9.23: what is refused changes nothing, and says why.
func TestDrainRefuses(t *testing.T) {
	l := newDrainLab(t)
	l.start()
	a, b, c := l.Pods[0].IPv4.String(), l.Pods[1].IPv4.String(), l.Pods[2].IPv4.String()
	for args, want := range map[string]string{
		"drain 10.9.9.9":                     "no Service has the endpoint 10.9.9.9",
		"drain " + a + ":8081":               "no Service has the endpoint " + a + ":8081: did you mean " + a + ":8080?",
		"drain " + a + "1":                   "did you mean " + a,
		"drain " + a + " --service shop/wbe": `no Service is named "shop/wbe": did you mean shop/web?`,
		"drain web":                          `"web" is not an endpoint`,
		"drain " + a + " " + b + " " + c:     "Service shop/web would have no other endpoint than " + a + ": new connections would be rejected",
		"undrain " + a:                       a + " is not drained: nothing is",
		"undrain":                            "name the addresses to put back into service",
		"drain --all":                        "--all is for undrain",
		"drain --wait":                       "name the addresses to drain",
		"drain " + a + " --timeout 5s":       "--timeout is a positive time, for --wait",
		"drain " + a + " --drain-file /a/b":  "follows " + l.file + ", not /a/b: if that is right, add --drain-file " + l.file,
		"drain " + manyEndpoints(1000):       " addresses are too many for one command: name at most ",
		"drain --list " + a:                  "--list takes no addresses",
		"drain " + a + " -o xml":             "unknown format",
		"drain " + a + " --service a/b/c":    "--service: \"a/b/c\" is not the name of a Service",
		"undrain " + a + " --all":            "--all is for undrain, without addresses",
		"drain " + a + " --undo --wait":      "--wait and --force are for drain",
	} {
		r := l.run(strings.Fields(args)...)
		if r.code != cli.CodeError || !strings.Contains(r.stderr, want) || r.stdout != "" {
			t.Errorf("%s: exit code %d, want %q:\n%s%s", args, r.code, want, r.stdout, r.stderr)
		}
	}
	for _, args := range [][]string{{"drain", a}, {"undrain", "--all"}} { // an answer names no file to write
		if r := ask(t, l.Node.Namespace, args...); r.code != cli.CodeError || !strings.Contains(r.stderr, "follows "+l.file+", not "+config.DefaultDrainFile) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if _, err := os.Stat(l.file); err == nil {
		t.Error("the file was written")
	}
	if out := l.succeeds("drain"); out != "no endpoint is drained\n" {
		t.Error(out)
	}
	if out := l.succeeds("drain", a, b, c, "--force"); !strings.Contains(out, "Service shop/web: 0 of 3 endpoints left: new connections fail") {
		t.Error(out)
	}
	if _, err := l.Client.Ask("tcp", webAddresses[model.IPv4], 0); err == nil {
		t.Error("it answers")
	}
}

// manyEndpoints returns n addresses that no Service has.
func manyEndpoints(n int) string {
	var out []string
	for i := range n {
		out = append(out, netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}).String())
	}
	return strings.Join(out, " ")
}

// More endpoints than fit into one question are listed and undrained.
func TestDrainListsMany(t *testing.T) {
	l := newDrainLab(t)
	l.start()
	l.succeeds("drain", "-o", "json", l.Pods[0].IPv4.String())
	all := strings.Fields(manyEndpoints(600))
	for some := range slices.Chunk(all, 300) {
		l.succeeds(append([]string{"drain", "--force"}, some...)...)
	}
	out := l.succeeds("drain")
	if n := strings.Count(out, "10.200."); n != 600 || !strings.Contains(out, "shop/sticky, shop/web") {
		t.Errorf("%d of 600 are listed:\n%.500s", n, out)
	}
	l.succeeds(append([]string{"undrain"}, all...)...)
	if out := l.succeeds("drain"); strings.Contains(out, "10.200.") || !strings.Contains(out, l.Pods[0].IPv4.String()) {
		t.Errorf("after undrain:\n%.500s", out)
	}
}

// 9.22, 9.25: the list outlives the daemon, is followed while it is edited, and is in
// force as it was while it is broken.
func TestDrainFileIsFollowed(t *testing.T) {
	l := newDrainLab(t)
	a, b := l.Pods[0].IPv4, l.Pods[1].IPv4
	none := ask(t, l.Node.Namespace, "drain", a.String(), "--drain-file", l.file, "--metrics-bind-address", "127.0.0.1:7011")
	if none.code != 0 || !strings.Contains(none.stdout, "new connections may still reach it") || !strings.Contains(none.stdout, "written to "+l.file+" for \"nftproxy run\" and \"nftproxy apply\": no daemon answers at 127.0.0.1:7011") {
		t.Errorf("without a daemon: exit code %d: %s%s", none.code, none.stdout, none.stderr)
	}
	l.start()
	if got := l.answering(20, "tcp", webAddresses[model.IPv4]); got[l.Pods[0].Name] > 0 {
		t.Errorf("not drained at the start: %v", got)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(l.file+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(l.file+"~", l.file); err != nil {
			t.Fatal(err)
		}
	}
	describes := func(want string) func() bool {
		return func() bool { return strings.Contains(l.run("describe", "shop/web").stdout, want) }
	}
	write("kind: Drain\nendpoints: [{endpoint: \"" + b.String() + ":8080\", service: shop/web}]")
	eventually(t, "the edited file", func() bool {
		got := l.answering(10, "tcp", webAddresses[model.IPv4])
		return got[l.Pods[0].Name] > 0 && got[l.Pods[1].Name] == 0
	})
	eventually(t, "the reason", describes("drained by nftproxy drain"))
	if out := l.succeeds("explain", "tcp", webAddresses[model.IPv4].String()); !strings.Contains(out, b.String()+":8080  drained by nftproxy drain") {
		t.Errorf("explain:\n%s", out)
	}
	if got := l.answering(20, "tcp", webAddresses[model.IPv6]); len(got) != 3 {
		t.Errorf("IPv6: %v", got)
	}
	write("kind: Drain\nendpoints: [{endpont: 10.0.0.2}]")
	eventually(t, "a problem in the status", func() bool {
		return strings.Contains(l.run("status").stdout, "endpoints[0].endpont: unknown field: did you mean endpoint?")
	})
	if got := l.answering(20, "tcp", webAddresses[model.IPv4]); got[l.Pods[1].Name] > 0 {
		t.Errorf("while the file is broken: %v", got)
	}
	_, metrics := get(t, l.Node.Namespace, "http://127.0.0.1:7011/metrics")
	if !strings.Contains(metrics, "\nnftproxy_drained_endpoints 1\n") || !strings.Contains(metrics, "\nnftproxy_drain_file_usable 0\n") {
		t.Error("the metrics lack it")
	}
	if out := l.run("status").stdout; !strings.Contains(out, "Endpoint "+b.String()+":8080 of Service shop/web") {
		t.Errorf("the status lacks the endpoint:\n%s", out)
	}
	if r := l.run("drain", a.String()); r.code != cli.CodeError || !strings.Contains(r.stderr, "unknown field") {
		t.Errorf("a broken file is replaced: %s%s", r.stdout, r.stderr)
	}
	if out := l.succeeds("drain"); !strings.Contains(out, l.file+" cannot be used, and its last list stays in force:") || !strings.Contains(out, b.String()+":8080") {
		t.Error(out)
	}
	if err := os.Remove(l.file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a problem with the missing file", func() bool {
		return strings.Contains(l.run("status").stdout, l.file+" does not exist any more: restore it from "+l.file+".last")
	})
	if r := l.run("drain", a.String()); r.code != cli.CodeError || !strings.Contains(r.stderr, "does not exist any more") {
		t.Errorf("a drain without the file: %s%s", r.stdout, r.stderr)
	}
	if got := l.answering(20, "tcp", webAddresses[model.IPv4]); got[l.Pods[1].Name] > 0 {
		t.Errorf("without the file: %v", got)
	}
	l.succeeds("undrain", "--all")
	eventually(t, "the end of all drains", func() bool { return l.answering(10, "tcp", webAddresses[model.IPv4])[l.Pods[1].Name] > 0 })
}

// 9.22: a restart at which the file cannot be used keeps what was drained.
func TestDrainsAfterRestart(t *testing.T) {
	l := newDrainLab(t)
	pod := l.Pods[0]
	p := l.start()
	l.succeeds("drain", pod.IPv4.String())
	l.stop(p)
	for _, content := range []string{"{{{", ""} {
		if err := os.WriteFile(l.file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p := l.start()
		if got := l.answering(20, "tcp", webAddresses[model.IPv4]); got[pod.Name] > 0 {
			t.Errorf("after a restart with %q: %v", content, got)
		}
		out := l.succeeds("drain")
		for _, want := range []string{l.file + " cannot be used, and its last list stays in force:", pod.IPv4.String()} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q:\n%s", want, out)
			}
		}
		l.stop(p)
	}
	if err := os.Remove(l.file + ".last"); err != nil {
		t.Fatal(err)
	}
	l.start()
	if out := l.succeeds("drain"); !strings.Contains(out, "cannot be used, and no earlier list is known:") || !strings.Contains(out, "no endpoint is drained") {
		t.Error(out)
	}
	if out := l.run("status").stdout; !strings.Contains(out, "no earlier one is known: no endpoint is drained") {
		t.Error(out)
	}
}

// 9.26: diff and apply lead to the rules of the running nftproxy, also while endpoints are
// drained; render and a comparison of files do not depend on the machine.
func TestDrainInOneShotCommands(t *testing.T) {
	l := newDrainLab(t)
	input := writeFile(t, l.input())
	pod := l.Pods[0]
	if _, err := (drain.File{Path: l.file}).Update(func(list drain.List) (drain.List, error) {
		return list.With(time.Now(), drain.Target{Address: pod.IPv4}), nil
	}); err != nil {
		t.Fatal(err)
	}
	run := func(code int, args ...string) result {
		t.Helper()
		r := ask(t, l.Node.Namespace, args...)
		if r.code != code {
			t.Fatalf("%s: exit code %d: %s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
		}
		return r
	}
	warning := "warning: " + l.file + " drains 1 endpoint on this machine"
	if r := run(0, "apply", "-f", input, "--drain-file", l.file); !strings.Contains(r.stderr, warning) {
		t.Errorf("apply: %s", r.stderr)
	}
	if got := l.answering(20, "tcp", webAddresses[model.IPv4]); got[pod.Name] > 0 {
		t.Errorf("apply: %v", got)
	}
	if r := run(0, "diff", "-f", input, "--drain-file", l.file); !strings.Contains(r.stderr, warning) {
		t.Errorf("diff: %s", r.stderr)
	}
	if r := run(cli.CodeNo, "diff", "-f", input, "--drain-file", ""); !strings.Contains(r.stdout, pod.IPv4.String()) {
		t.Errorf("diff without the file: %s", r.stdout)
	}
	run(0, "diff", "--from", input, "-f", input, "--drain-file", l.file)
	if r := run(0, "render", "-f", input); !strings.Contains(r.stdout, pod.IPv4.String()) {
		t.Error("render depends on the machine")
	}
	if err := os.WriteFile(l.file, []byte("kind: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(cli.CodeError, "diff", "-f", input, "--drain-file", l.file); !strings.Contains(r.stderr, l.file) {
		t.Errorf("a broken file: %s", r.stderr)
	}
}
