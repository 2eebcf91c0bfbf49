package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// place is where clients run, and what they ask.
type place struct {
	node      string // empty: outside of the cluster
	host      bool   // on the node itself, and not in a pod
	frontends []frontends
}

func (p place) name() string {
	switch {
	case p.node == "":
		return "outside"
	case p.host:
		return "node-" + p.node
	default:
		return "pod-" + p.node
	}
}

// everywhere is all ways to reach a Service.
var everywhere = []place{
	{node: "n2", frontends: []frontends{clusterIPs, nodePorts("n1"), balanced}},
	{node: "n3", host: true, frontends: []frontends{clusterIPs, nodePorts("n1"), balanced}},
	{frontends: []frontends{nodePorts("n1"), balanced}},
}

// count is what a client has done, as the program load reports it.
type count struct {
	Kind, Target string
	Sent, Failed int
	InARow       int // most failures
	Slowest      time.Duration
	Errors       []string
	place        string
}

// load is clients that make requests to the Service web.
type load struct {
	t       testing.TB
	c       *cluster
	counts  map[string]string // URLs, by place
	started []count           // when the test began
	ends    []func()          // ends the clients
}

// startLoad starts clients, and waits until all of them get answers.
func (c *cluster) startLoad(t testing.TB, places ...place) *load {
	t.Helper()
	l := &load{t: t, c: c, counts: map[string]string{}}
	t.Cleanup(l.end)
	service := c.web(t)
	for _, p := range places {
		var targets []string
		for _, f := range p.frontends {
			targets = append(targets, f(c, service)...)
		}
		if p.node == "" {
			l.startProcess(targets)
		} else {
			l.startPod(p, targets)
		}
	}
	l.quiet()
	l.mark()
	return l
}

const countsPort = "9000"

// startProcess starts clients outside of the cluster.
func (l *load) startProcess(targets []string) {
	l.t.Helper()
	cmd := exec.Command(filepath.Join(l.c.Programs.OwnDir, "load"), append([]string{"ask", "-listen=127.0.0.1:" + countsPort}, targets...)...)
	if err := l.c.Control.Start(cmd); err != nil {
		l.t.Fatal(err)
	}
	l.ends = append(l.ends, func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	l.counts[place{}.name()] = "127.0.0.1"
}

// startPod starts clients in a pod.
func (l *load) startPod(p place, targets []string) {
	l.t.Helper()
	args, err := json.Marshal(append([]string{"ask", "-listen=:" + countsPort}, targets...))
	if err != nil {
		l.t.Fatal(err)
	}
	err = l.c.Apply(l.t.Context(), fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  hostNetwork: %t
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers: [{name: load, image: %q, args: %s}]`, p.name(), p.node, p.host, loadImage, args))
	if err != nil {
		l.t.Fatal(err)
	}
	l.ends = append(l.ends, func() {
		if _, err := l.c.Kubectl(context.Background(), "delete", "pod", p.name(), "--force", "--ignore-not-found"); err != nil {
			l.t.Error(err)
		}
	})
	l.c.kubectl(l.t, "wait", "--for=condition=Ready", "pod/"+p.name(), "--timeout=60s")
	l.counts[p.name()] = strings.TrimSpace(l.c.kubectl(l.t, "get", "pod", p.name(), "-o", "jsonpath={.status.podIP}"))
}

// end ends the clients. The load can be ended again.
func (l *load) end() {
	for _, f := range l.ends {
		f()
	}
	l.ends = nil
}

// read returns the counts of all clients.
func (l *load) read() []count {
	l.t.Helper()
	return l.get("")
}

func (l *load) get(query string) (all []count) {
	l.t.Helper()
	web := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: l.c.Control.DialContext, DisableKeepAlives: true}}
	for p, address := range l.counts {
		var counts []count
		eventually(l.t, func() error {
			r, err := web.Get("http://" + net.JoinHostPort(address, countsPort) + "/counts" + query)
			if err != nil {
				return err
			}
			defer r.Body.Close()
			return json.NewDecoder(r.Body).Decode(&counts)
		})
		for i := range counts {
			counts[i].place = p
		}
		all = append(all, counts...)
	}
	slices.SortFunc(all, func(a, b count) int {
		return cmp.Or(strings.Compare(a.place, b.place), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Target, b.Target))
	})
	return all
}

// since returns what the clients have done since an earlier reading.
func (l *load) since(before []count) []count {
	l.t.Helper()
	now := l.read()
	for i, b := range before {
		n := &now[i]
		n.Sent, n.Failed = n.Sent-b.Sent, n.Failed-b.Failed
		n.Errors = n.Errors[min(len(b.Errors), len(n.Errors)):]
	}
	return now
}

// result waits until each client has made some more requests, and returns what
// they have done since the start.
func (l *load) result() []count {
	l.t.Helper()
	before := l.read()
	eventually(l.t, func() error {
		for _, n := range l.since(before) {
			if n.Sent < 10 {
				return fmt.Errorf("%s: %+v", n.place, n)
			}
		}
		return nil
	})
	return l.since(l.started)
}

// quiet waits until each client has got some answers in succession.
func (l *load) quiet() {
	l.t.Helper()
	before := l.read()
	eventually(l.t, func() error {
		for _, n := range l.since(before) {
			if n.Failed > 0 {
				before = l.read()
			}
			if n.Failed > 0 || n.Sent < 3 {
				return fmt.Errorf("%s: %+v", n.place, n)
			}
		}
		return nil
	})
}

// mark makes the counts begin now.
func (l *load) mark() {
	l.t.Helper()
	l.started = l.get("?begin")
}

// check fails the test if a request failed since the start.
func (l *load) check() {
	l.t.Helper()
	counts := l.result()
	fmt.Fprintf(l.t.Output(), "requests:\n%s\n", table(column{"nftproxy", counts}))
	mustAnswer(l.t, counts)
}

// mustAnswer fails the test if a request failed. When a flow of UDP is moved to
// another server, an answer on its way to the client is lost (9.2): the next
// request must be answered.
func mustAnswer(t testing.TB, counts []count) {
	t.Helper()
	for _, n := range counts {
		if n.Failed > 0 && (n.Kind != "udp-kept" || n.InARow > 1) {
			t.Errorf("%s, %s to %s: %d of %d requests failed, %d in a row:\n  %s",
				n.place, n.Kind, n.Target, n.Failed, n.Sent, n.InARow, strings.Join(n.Errors, "\n  "))
		}
	}
}

// column is the counts of a run.
type column struct {
	name   string
	counts []count
}

// table sums counts up by the kind of the requests.
func table(columns ...column) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "kind\t")
	for _, c := range columns {
		fmt.Fprintf(w, "%s: requests\tfailed\tslowest\t", c.name)
	}
	fmt.Fprintln(w)
	for _, kind := range []string{"tcp", "kept", "udp", "udp-kept", "grpc"} {
		fmt.Fprintf(w, "%s\t", kind)
		for _, c := range columns {
			var sum count
			for _, n := range c.counts {
				if n.Kind == kind {
					sum.Sent, sum.Failed, sum.Slowest = sum.Sent+n.Sent, sum.Failed+n.Failed, max(sum.Slowest, n.Slowest)
				}
			}
			fmt.Fprintf(w, "%d\t%d\t%v\t", sum.Sent, sum.Failed, sum.Slowest.Round(time.Millisecond))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return text.String()
}
