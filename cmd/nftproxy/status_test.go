package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command/look"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// runStatus runs the command in a namespace, for a daemon at an address.
func runStatus(t *testing.T, ns *netlab.Namespace, address string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := look.StatusCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"--metrics-bind-address", address}, args...))
	c.SetOut(&out)
	err := ns.Do(func() error { return c.ExecuteContext(t.Context()) })
	return out.String(), err
}

// unusedAddress returns an address without a listener.
func unusedAddress() string {
	s := httptest.NewServer(nil)
	defer s.Close()
	return s.Listener.Addr().String()
}

// TestStatusOfKernel reads the tables where no daemon answers.
func TestStatusOfKernel(t *testing.T) {
	ns, address := netlab.TestNamespace(t), unusedAddress()
	_, err := runStatus(t, ns, address)
	for _, want := range []string{"no daemon answers at " + address, "the kernel has no tables of nftproxy", "--metrics-bind-address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without tables: %v, want %q", err, want)
		}
	}
	if r := in(t, ns, "apply", "-f", writeFile(t, service)); r.code != 0 {
		t.Fatal(r.stderr)
	}
	out, err := runStatus(t, ns, address)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 problems\n", "Machine: net.ipv4.ip_forward is 0", "Machine: this machine has no route to 10.128.1.1, 10.128.1.2: connections to 2 endpoints fail", "no daemon answers at " + address, "from the kernel's tables\n",
		"serves     1 Service, 1 frontend, 2 endpoints in use",
		"default/web:http  tcp 10.96.0.10:80  ClusterIP  2\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("printed %q, want %q", out, want)
		}
	}
	for args, want := range map[string]string{
		"-n kube-system":      `no Service matches namespace "kube-system"`,
		"-n defaut":           `no Service matches namespace "defaut": did you mean default?`,
		"wbe":                 `no Service matches "wbe": did you mean web?`,
		"-n default api shop": `no Service matches "api" or "shop" in namespace "default"`,
	} {
		if out, err := runStatus(t, ns, address, strings.Fields(args)...); err == nil || err.Error() != want || out != "" {
			t.Errorf("%s: %v, want %s; printed %q", args, err, want, out)
		}
	}
	for _, args := range []string{"web", "default/web", "default/*", "-n default", "-A", "--problems"} {
		want := error(nil)
		if args == "--problems" { // of the machine
			want = cli.ErrNo
		}
		if out, err := runStatus(t, ns, address, strings.Fields(args)...); !errors.Is(err, want) || strings.Contains(out, "default/web:http") == (args == "--problems") {
			t.Errorf("%s: %v, %s", args, err, out)
		}
	}
	out, err = runStatus(t, ns, address, "-o", "json")
	var r api.Status
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || r.From != api.FromKernel || len(r.ServicePorts) != 1 {
		t.Errorf("JSON: %v, %s", err, out)
	}
}

// TestStatusOfDaemon asks a daemon that is in a good state, or not.
func TestStatusOfDaemon(t *testing.T) {
	ns := netlab.TestNamespace(t)
	for _, c := range []struct {
		healthy bool
		want    error
		args    []string
	}{{true, nil, nil}, {false, cli.ErrNo, nil}, {true, cli.ErrNo, []string{"--problems"}}} {
		daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"from": "daemon", "healthy": %t, "daemon": {"node": "node-1"}, "findings": {"problems": [{"object": {"kind": "a"}, "reason": "b", "message": "c"}]}}`, c.healthy)
		}))
		out, err := runStatus(t, ns, daemon.Listener.Addr().String(), c.args...)
		if !errors.Is(err, c.want) || !strings.Contains(out, "node-1") {
			t.Errorf("healthy %t: %v, %s", c.healthy, err, out)
		}
		daemon.Close()
	}
}

func TestStatusUsage(t *testing.T) {
	ns := netlab.TestNamespace(t)
	for args, want := range map[string]string{
		"-o xml":                           `--output: unknown format "xml": use text, json or yaml`,
		"--metrics-bind-address localhost": `"localhost" is not an address: write it like 127.0.0.1:10249`,
		"shop/[":                           `"shop/[" is not the name of a Service`,
		"--config /nowhere":                "exclude each other",
		"--color sometimes":                "unknown value",
	} {
		if _, err := runStatus(t, ns, unusedAddress(), strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestStatusNotSynced: 11.22. A daemon that answers before its first sync does not make a name look wrong.
func TestStatusNotSynced(t *testing.T) {
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = (&api.Status{From: api.FromDaemon}).WriteJSON(w)
	}))
	defer daemon.Close()
	var stdout, stderr bytes.Buffer
	code := run([]string{"status", "shop/web", "--metrics-bind-address", daemon.Listener.Addr().String()}, strings.NewReader(""), &stdout, &stderr)
	if want := "nftproxy: not synced yet: whether a Service matches \"shop/web\" is not known so far\n"; code != cli.CodeError || stderr.String() != want || stdout.Len() > 0 {
		t.Errorf("code %d: %s%s", code, &stdout, &stderr)
	}
}
