package main

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

// beProgram is a variable of the environment with which the program of the tests is the one that they test.
const beProgram = "BE_KUBECTL_NFTPROXY"

func TestMain(m *testing.M) {
	if os.Getenv(beProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// execute runs a command line without an API server.
func execute(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// TestFlagsOfKubectl: 18.27. The flags with which kubectl reaches an API server reach it: requests have the user that
// --as names.
func TestFlagsOfKubectl(t *testing.T) {
	s := fleetlab.New(t, []fleetlab.Agent{onNode("n1", "1", "a")})
	var users []string
	answers := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		users = append(users, r.Header.Get("Impersonate-User"))
		answers.ServeHTTP(w, r)
	})
	code, _, stderr := plugin(t, s, "status", "--as=jane", "--request-timeout=7s", "-n", "shop", "--color", "never")
	if code != 0 || len(users) == 0 || users[0] != "jane" {
		t.Errorf("--as: code %d, users %q\n%s", code, users, stderr)
	}
	if code, _, stderr := plugin(t, s, "status", "--server", "http://127.0.0.1:1"); code != cli.CodeError || !strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("--server: code %d\n%s", code, stderr)
	}
	for _, name := range []string{"as", "as-group", "as-uid", "cache-dir", "certificate-authority", "client-certificate", "client-key", "cluster", "context", "insecure-skip-tls-verify",
		"kubeconfig", "namespace", "request-timeout", "server", "tls-server-name", "token", "user"} {
		if rootCommand().PersistentFlags().Lookup(name) == nil {
			t.Errorf("there is no --%s", name)
		}
	}
}

// TestOwnName: 18.28. Help, errors and the version have the name under which kubectl runs the program, and no other one.
func TestOwnName(t *testing.T) {
	for _, c := range rootCommand().Commands() {
		code, help, stderr := execute(c.Name(), "--help")
		if code != 0 || stderr != "" || !strings.Contains(help, "\n  kubectl nftproxy "+c.Name()) || strings.Contains(help, "nftproxy cluster") {
			t.Errorf("%s --help: code %d\n%s%s", c.Name(), code, help, stderr)
		}
	}
	for _, args := range [][]string{{"status", "--nope"}, {"nope"}} {
		if code, _, stderr := execute(args...); code != cli.CodeError || !strings.HasPrefix(stderr, "kubectl nftproxy: ") || !strings.Contains(stderr, `run "kubectl nftproxy`) {
			t.Errorf("%q: code %d\n%s", args, code, stderr)
		}
	}
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if code, stdout, stderr := execute(args...); code != 0 || !strings.HasPrefix(stdout, "kubectl-nftproxy (devel) (go") {
			t.Errorf("%q: code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// TestCompletion: 18.28. The shell completes commands and values of flags, by the same words that kubectl sends to
// kubectl_complete-nftproxy.
func TestCompletion(t *testing.T) {
	for words, want := range map[string]string{
		"":                  "status\t",
		"st":                "status\t",
		"status --":         "--watch\t",
		"status --via ":     "port-forward\n",
		"status --output ":  "json\n",
		"status --context ": "c\n",
	} {
		s := fleetlab.New(t, nil)
		args := strings.Split(words, " ")
		code, stdout, stderr := execute(append([]string{cobra.ShellCompRequestCmd, "--kubeconfig", s.Kubeconfig(t)}, args...)...)
		if code != 0 || !strings.Contains("\n"+stdout, "\n"+want) {
			t.Errorf("%q: code %d\n%s%s", words, code, stdout, stderr)
		}
	}
	script := exec.CommandContext(t.Context(), "../../scripts/kubectl_complete-nftproxy", "status", "--via", "")
	script.Env = append(os.Environ(), "PATH="+t.TempDir()+":"+os.Getenv("PATH"))
	link := strings.Split(strings.TrimPrefix(script.Env[len(script.Env)-1], "PATH="), ":")[0] + "/kubectl-nftproxy"
	if err := os.WriteFile(link, []byte("#!/bin/sh\n"+beProgram+"=1 exec "+os.Args[0]+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := script.Output(); err != nil || !strings.Contains(string(out), "port-forward\n") {
		t.Errorf("the script for kubectl: %v\n%s", err, out)
	}
}
