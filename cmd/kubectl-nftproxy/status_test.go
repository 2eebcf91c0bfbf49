package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

// onNode is an nftproxy that is healthy.
func onNode(node, version, zone string) fleetlab.Agent {
	return fleetlab.Agent{Node: node, Pod: "nftproxy-" + node, Labels: map[string]string{"zone": zone}, Answers: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = (&api.Status{From: api.FromDaemon, Healthy: true, Daemon: api.Daemon{Version: version}}).WriteJSON(w)
	})}
}

// plugin runs a command line as kubectl does.
func plugin(t *testing.T, s *fleetlab.Server, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(append(args, "--kubeconfig", s.Kubeconfig(t)), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// TestClusterStatus: 18.1, 18.3. The plug-in of kubectl asks the nodes that names or labels select,
// and names mixed versions.
func TestClusterStatus(t *testing.T) {
	stopped := onNode("n3", "1", "b")
	stopped.Answers, stopped.Silent = nil, true
	s := fleetlab.New(t, []fleetlab.Agent{onNode("n1", "1", "a"), onNode("n2", "2", "a"), stopped})
	for _, c := range []struct {
		args  []string
		code  int
		lines []string
	}{
		{[]string{"n1", "--color", "never"}, 0, []string{"1 node: 1 ok", "", "NODE  VERDICT  BEHIND  LAST SYNC  VERSION  SOURCE  REASON", "n1    ok                          1"}},
		{[]string{"-l", "zone=a"}, 0, []string{"2 nodes: 2 ok", "mixed versions: 1 on 1 node, 2 on 1 node"}},
		{[]string{"n3", "--timeout", "1s"}, cli.CodeNo, []string{"1 node: 1 no answer", "", "NODE  VERDICT    BEHIND  LAST SYNC  VERSION  SOURCE  REASON",
			"n3    no answer                                      no answer within 1s: is the process stopped?"}},
	} {
		code, stdout, stderr := plugin(t, s, append([]string{"status"}, c.args...)...)
		lines := strings.Split(strings.TrimRight(stdout, "\n"), "\n")
		if code != c.code || stderr != "" || !slices.Equal(lines[:min(len(lines), len(c.lines))], c.lines) {
			t.Errorf("%q: code %d\n%s%s", c.args, code, stdout, stderr)
		}
	}
	if code, _, stderr := plugin(t, s, "status", "n9"); code != cli.CodeError || !strings.Contains(stderr, `there is no node "n9"`) {
		t.Errorf("a node that does not exist: code %d, %s", code, stderr)
	}
}

// observes answers with events whose times are seconds of a minute.
func observes(node string, lost uint64, seconds ...int) fleetlab.Agent {
	r := api.Observed{Level: "refusals", Instance: node, Time: time.Now(), Lost: lost}
	for i, s := range seconds {
		r.Next = uint64(i + 1)
		r.Events = append(r.Events, api.Observation{Number: r.Next, Time: time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC), Outcome: "refused", Reason: "denied", Ends: "dropped",
			Protocol: "tcp", Client: fmt.Sprintf("10.0.0.%d", s), Frontend: "10.96.0.1:80", Namespace: "shop", Service: "web"})
	}
	a := onNode(node, "1", "a")
	a.Answers = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		answer := r
		if q.URL.Query().Has("after") {
			answer.Events, answer.Lost = nil, lost+3
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
	return a
}

// TestClusterObserve: 18.7. The events of all nodes are in the order of their times, nodes that do
// not observe are named, and so are losses while the command follows.
func TestClusterObserve(t *testing.T) {
	off := observes("n3", 0)
	off.Answers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(api.Observed{Level: "off"})
	})
	s := fleetlab.New(t, []fleetlab.Agent{observes("n1", 1, 1, 4, 5), observes("n2", 0, 2, 3, 6), off})
	code, stdout, stderr := plugin(t, s, "observe", "shop/web", "-o", "json")
	var got []string
	for line := range strings.Lines(stdout) {
		var e api.Observation
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Node+" "+e.Client)
	}
	want := []string{"n1 10.0.0.1", "n2 10.0.0.2", "n2 10.0.0.3", "n1 10.0.0.4", "n1 10.0.0.5", "n2 10.0.0.6"}
	if code != 0 || !slices.Equal(got, want) || stderr != "n3: does not observe connections: --observe=refusals\n" {
		t.Errorf("code %d, %q, %s", code, got, stderr)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root, out := rootCommand(), &signalling{text: "n1: 3 events are lost", found: cancel}
	root.SetArgs([]string{"observe", "-f", "--kubeconfig", s.Kubeconfig(t)})
	root.SetOut(out)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(ctx); err != nil || !strings.Contains(out.String(), "n2  10.0.0.2 -> 10.96.0.1:80/tcp (shop/web)  dropped, denied") {
		t.Errorf("%v\n%s", err, out)
	}
}

// signalling is a buffer that calls found once it has a text.
type signalling struct {
	bytes.Buffer
	text  string
	found func()
}

func (s *signalling) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.text) {
		s.found()
	}
	return n, err
}

// TestClusterStatusWatch: 18.3. With --watch the nodes are asked again, until the command ends.
func TestClusterStatusWatch(t *testing.T) {
	s := fleetlab.New(t, []fleetlab.Agent{onNode("n1", "1", "a")})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root, out := rootCommand(), &signalling{text: "1 node: 1 ok\n"}
	out.found = func() {
		if strings.Count(out.String(), "1 node: 1 ok\n") == 3 {
			cancel()
		}
	}
	root.SetArgs([]string{"status", "--watch", "--every", "1ms", "--kubeconfig", s.Kubeconfig(t)})
	root.SetOut(out)
	if err := root.ExecuteContext(ctx); err != nil || strings.Count(out.String(), "1 node: 1 ok\n") < 3 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestClusterStatusInterrupted: 18.26. While the API server is silent, an interruption ends the command with an error.
func TestClusterStatusInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	}))
	defer silent.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "` + silent.URL + `"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	root := rootCommand()
	root.SetArgs([]string{"status", "--kubeconfig", kubeconfig})
	root.SetOut(io.Discard)
	if err := root.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("interrupted: %v", err)
	}
}

// TestClusterConverge: 18.12 to 18.15. The command prints what was measured, says which nodes were not by its exit code, and
// when it is interrupted that nothing remains.
func TestClusterConverge(t *testing.T) {
	store := &fleetlab.Store{}
	follow := fleetlab.Agent{Node: "n1", Pod: "nftproxy-n1", Answers: store.Follows(0, nil, nil, nil)}
	s := fleetlab.New(t, []fleetlab.Agent{follow, {Node: "n2"}})
	s.Others = store
	code, stdout, stderr := plugin(t, s, "converge", "n1", "--rounds", "2", "--color", "never")
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "1 of 1 node measured in 2 rounds\nfrom the answer of the API server") || !strings.Contains(stdout, "\nSLOWEST NODES") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = plugin(t, s, "converge", "--rounds", "2", "-o", "json")
	var r fleet.Convergence
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != cli.CodeNo || stderr != "" || r.Rounds != 2 || len(r.Nodes) != 2 || r.Nodes[0].Name != "n2" || len(r.Nodes[1].Seconds) != 2 {
		t.Errorf("code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	for _, args := range [][]string{{"--rounds", "0"}, {"--rounds", "251"}, {"--wait", "0s"}, {"n9"}} {
		if code, _, stderr := plugin(t, s, append([]string{"converge"}, args...)...); code != cli.CodeError || !strings.Contains(stderr, args[0]) {
			t.Errorf("%q: code %d, %s", args, code, stderr)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	store.Wrote = func(method, _ string) {
		if method == http.MethodPatch {
			cancel()
		}
	}
	root := rootCommand()
	root.SetArgs([]string{"converge", "--kubeconfig", s.Kubeconfig(t)})
	root.SetOut(io.Discard)
	err := root.ExecuteContext(ctx)
	if err == nil || err.Error() != "interrupted after 0 rounds; all objects of this run are removed" || len(store.Paths()) > 0 {
		t.Errorf("interrupted: %v; %q remain", err, store.Paths())
	}
	store.Wrote, store.Denied = nil, []string{"create services"}
	if code, _, stderr := plugin(t, s, "converge"); code != cli.CodeError || !strings.Contains(stderr, "permissions are missing: create services; the ClusterRole nftproxy-converge") {
		t.Errorf("without a permission: code %d, %s", code, stderr)
	}
}

// TestClusterConvergeSignals: 18.14. A process that SIGINT or SIGTERM ends in the middle of a round leaves nothing, and what
// one leaves that SIGKILL ends is removed by a run when the other one would have ended.
func TestClusterConvergeSignals(t *testing.T) {
	store := &fleetlab.Store{}
	s := fleetlab.New(t, []fleetlab.Agent{{Node: "n1", Pod: "nftproxy-n1", Answers: store.Follows(time.Hour, nil, nil, nil)}}) // a round does not end
	s.Others = store
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		begun := make(chan struct{}, 1)
		store.Wrote = func(method, path string) {
			if method == http.MethodPost && strings.HasSuffix(path, "/endpointslices") {
				begun <- struct{}{}
			}
		}
		var log bytes.Buffer
		p := exec.CommandContext(t.Context(), os.Args[0], "converge", "--kubeconfig", s.Kubeconfig(t))
		p.Env = append(os.Environ(), beProgram+"=1")
		p.Stderr = &log
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.Wait() }()
		select {
		case <-begun:
		case err := <-ended:
			t.Fatalf("%v\n%s", err, log.String())
		}
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		<-ended
		switch code, left := p.ProcessState.ExitCode(), store.Paths(); {
		case signal == syscall.SIGKILL:
			if len(left) != 3 {
				t.Errorf("after %v: %q", signal, left)
			}
		case code != cli.CodeError || len(left) > 0 || log.String() != "kubectl nftproxy: interrupted after 0 rounds; all objects of this run are removed\n":
			t.Errorf("%v: code %d, %q remain\n%s", signal, code, left, log.String())
		}
	}
	store.Wrote = nil
	at := store.Paths()[0]
	for _, created := range []time.Time{time.Now(), time.Now().Add(-time.Hour)} {
		store.Put(at, map[string]any{"metadata": map[string]any{"name": path.Base(at), "creationTimestamp": created.UTC().Format(time.RFC3339),
			"labels": map[string]any{fleet.LabelConverge: "true"}, "annotations": map[string]any{"nftproxy.dev/converge-seconds": "270"}}})
		var r fleet.Convergence
		code, stdout, stderr := plugin(t, s, "converge", "--rounds", "1", "--wait", "100ms", "-o", "json")
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != cli.CodeNo {
			t.Fatalf("code %d, %v\n%s%s", code, err, stdout, stderr)
		}
		old := time.Since(created) > time.Minute
		if left := store.Paths(); (len(left) == 0) != old || slices.Contains(r.Removed, path.Base(at)) != old || (len(r.Others) == 0) != old {
			t.Errorf("of a run that began at %v: %q remain; removed %q, others %+v", created, left, r.Removed, r.Others)
		}
	}
}
