package main

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

// onNode is an nftproxy that is healthy.
func onNode(node, version, zone string) fleetlab.Agent {
	return fleetlab.Agent{Node: node, Pod: "nftproxy-" + node, Labels: map[string]string{"zone": zone}, Answers: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = (&api.Status{From: api.FromDaemon, Healthy: true, Version: version}).WriteJSON(w)
	})}
}

// plugin runs a command line as kubectl does.
func plugin(t *testing.T, s *fleetlab.Server, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	argv := append([]string{"/usr/local/bin/" + pluginName}, args...)
	var out, errs bytes.Buffer
	code = run(append(arguments(argv), "--kubeconfig", s.Kubeconfig(t)), strings.NewReader(""), &out, &errs)
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
		{[]string{"n1", "--color", "never"}, 0, []string{"1 node: 1 ok", "", "NODE  VERDICT  LAST SYNC  VERSION  SOURCE  REASON", "n1    ok                  1"}},
		{[]string{"-l", "zone=a"}, 0, []string{"2 nodes: 2 ok", "mixed versions: 1 on 1 node, 2 on 1 node"}},
		{[]string{"n3", "--timeout", "1s"}, exitFailed, []string{"1 node: 1 no answer", "", "NODE  VERDICT    LAST SYNC  VERSION  SOURCE  REASON",
			"n3    no answer                              no answer within 1s: is the process stopped?"}},
	} {
		code, stdout, stderr := plugin(t, s, append([]string{"status"}, c.args...)...)
		lines := strings.Split(strings.TrimRight(stdout, "\n"), "\n")
		if code != c.code || stderr != "" || !slices.Equal(lines[:min(len(lines), len(c.lines))], c.lines) {
			t.Errorf("%q: code %d\n%s%s", c.args, code, stdout, stderr)
		}
	}
	if code, _, stderr := plugin(t, s, "status", "n9"); code != exitError || !strings.Contains(stderr, `there is no node "n9"`) {
		t.Errorf("a node that does not exist: code %d, %s", code, stderr)
	}
}
