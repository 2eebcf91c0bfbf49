package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// result is what a command line did.
type result struct {
	code           int
	stdout, stderr string
}

func execute(stdin string, args ...string) result {
	var out, problem bytes.Buffer
	code := run(args, strings.NewReader(stdin), &out, &problem)
	return result{code, out.String(), problem.String()}
}

// failure is the exit code of a command that fails.
func failure(command string) int {
	if command == "run" {
		return cli.CodeNo
	}
	return cli.CodeError
}

// in runs a command line in a network namespace.
func in(t *testing.T, ns *netlab.Namespace, args ...string) (r result) {
	t.Helper()
	if err := ns.Do(func() error { r = execute("", args...); return nil }); err != nil {
		t.Fatal(err)
	}
	return r
}

// beProgram in the environment makes the test binary the program.
const beProgram = "NFTPROXY_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(beProgram) != "" {
		main()
	}
	if name := os.Getenv(standFor); name != "" {
		os.Exit(standIns[name](os.Args[1:]))
	}
	os.Exit(netlab.Run(m.Run))
}

// process is the program in a process of its own.
type process struct {
	*exec.Cmd
	log    netlab.LogBuffer // standard error
	output netlab.LogBuffer
}

// start starts the program in a namespace, under the name that argv begins with.
func start(t *testing.T, ns *netlab.Namespace, argv ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Args = argv
	return startCommand(t, ns, cmd)
}

// startCommand starts a command that starts this test program as nftproxy.
func startCommand(t *testing.T, ns *netlab.Namespace, cmd *exec.Cmd) *process {
	t.Helper()
	return startWith(t, ns, cmd)
}

// startWith starts such a command with more variables.
func startWith(t *testing.T, ns *netlab.Namespace, cmd *exec.Cmd, variables ...string) *process {
	t.Helper()
	p := &process{Cmd: cmd}
	p.Env = append(append(os.Environ(), beProgram+"=1", "KUBERNETES_SERVICE_HOST="), variables...)
	p.Stdout, p.Stderr = &p.output, &p.log
	if err := ns.Start(p.Cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
		if t.Failed() {
			fmt.Fprintf(t.Output(), "%s:\n%s%s\n", strings.Join(cmd.Args, " "), &p.output, &p.log)
		}
	})
	return p
}

// says waits until the log has a text: it comes through a pipe.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	eventually(t, "the log has "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

// ends waits for the end and checks the exit code.
func (p *process) ends(t *testing.T, code int) {
	t.Helper()
	_ = p.Wait() // the code says it
	if got := p.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d\n%s%s", got, code, &p.output, &p.log)
	}
}

// kill ends the process without a chance to clean up.
func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait() // the error is the signal
}

// eventually waits until done returns true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	netlab.Eventually(t, 20*time.Second, func() error {
		if !done() {
			return errors.New("not met in time: " + what)
		}
		return nil
	})
}

const service = commandline.Service

func writeFile(t *testing.T, content string) string { return commandline.WriteFile(t, content) }

// TestHelp proves that the program teaches: on its own, and on each command.
func TestHelp(t *testing.T) {
	if r := execute(""); r.code != 0 || !strings.Contains(r.stdout, "nftproxy render -f services.yaml") {
		t.Errorf("without arguments: code %d, %q", r.code, r.stdout)
	}
	for _, c := range rootCommand().Commands() {
		r := execute("", c.Name(), "--help")
		if r.code != 0 || !strings.Contains(r.stdout, "Examples:\n  nftproxy "+c.Name()) {
			t.Errorf("%s --help: code %d, %q", c.Name(), r.code, r.stdout)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := execute("", "completion", shell); r.code != 0 || !strings.Contains(r.stdout, "nftproxy") {
			t.Errorf("completion %s: code %d, %s", shell, r.code, r.stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	if r := execute("", "version"); r.code != 0 || !strings.HasPrefix(r.stdout, "nftproxy "+version) {
		t.Errorf("version: code %d, %q", r.code, r.stdout)
	}
}

// TestUsageErrors lists command lines that must fail, with what the message
// must say.
func TestUsageErrors(t *testing.T) {
	path := writeFile(t, service)
	for _, c := range []struct{ args, want string }{
		{"frobnicate", `unknown command "frobnicate"`},
		{"render", "name a file with -f"},
		{"render FILE", "files are given with -f"},
		{"version FILE", "unexpected argument"},
		{"help statu", "unknown command \"statu\": did you mean status?"},
		{"completion basch", "unknown command \"basch\": did you mean bash?"},
		{"render --filename", "flag needs an argument"},
		{"render -f FILE -o xml", `--output: unknown format "xml": use nft, json or yaml`},
		{"diff -f FILE -o nft", `--output: unknown format "nft": use text, json, yaml or markdown`},
		{"diff -f FILE --color blue", `--color: unknown value "blue"`},
		{"render -f FILE --nonsense", "unknown flag: --nonsense"},
		{"render -f FILE --cluster-cidr 10.0.0.0", `--cluster-cidr: "10.0.0.0" is not a range`},
		{"render -f FILE --cluster-cidr 10.0.0.0/8,10.1.0.0/16", "are of one family"},
		{"render -f FILE --nodeport-addresses primary,primary", `"primary" is given twice`},                                          // 6.1
		{"render -f FILE --detect-local-mode BridgeInterface", "--pod-bridge-interface: mode BridgeInterface needs it"},              // 7.7
		{"render -f FILE --detect-local-mode InterfaceNamePrefix", "--pod-interface-name-prefix: mode InterfaceNamePrefix needs it"}, // 7.7
		{"render -f FILE --detect-local-mode Magic", `--detect-local-mode: unknown mode "Magic"`},                                    // 7.8
		{"render -f FILE --detect-local-mode BridgeInterface --pod-bridge-interface a*b", "is not the name of an interface"},
		{"render -f FILE --scheduler fair", `--scheduler: unknown scheduler "fair"`},
		{"render -f FILE --affinity-size 0", "--affinity-size: 0 clients cannot be remembered"},
		{"render -f FILE --nodeport-addresses 10.20.30.40", `--nodeport-addresses: "10.20.30.40" is not a range`},
		{"render -f FILE --bind-address [::]", `--bind-address: "[::]" is not an IP address`},
		{"render -f FILE --bind-address 10.0.0.1:80", `--bind-address: "10.0.0.1:80" is not an IP address`},
		{"render -f FILE --logging-format xml", `--logging-format: unknown format "xml"`},
		{"render -f FILE -v much", "invalid argument"},
		{"render -f missing.yaml", "missing.yaml"},
		{"run -f missing.yaml", "missing.yaml"},
		{"cleanup -f FILE", "unknown shorthand flag: 'f'"},
		{"run FILE", "files are given with -f"}, // 12.1
		{"run -f FILE --oom-score-adj 2000", "--oom-score-adj: 2000 is out of range"},
		{"run --config missing.conf", "missing.conf"},
		{"diff --config missing.conf", "missing.conf"},
		{"explain --config missing.conf tcp 10.96.0.10:80", "missing.conf"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "FILE", path))
		if r := execute("", args...); r.code != failure(args[0]) || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("nftproxy %s: code %d, want %q in %q", c.args, r.code, c.want, r.stderr)
		} else if strings.Contains(r.stderr, "context canceled") {
			t.Errorf("nftproxy %s: a cause without meaning: %q", c.args, r.stderr)
		}
	}
}

// TestMistakesTogether wants all wrong flags in one message.
func TestMistakesTogether(t *testing.T) {
	r := execute("", "render", "-f", "-", "--cluster-cidr", "x", "--bind-address", "y", "--nodeport-addresses", "z", "--hostname-override", " ")
	for _, want := range []string{"--cluster-cidr", "--bind-address", "--nodeport-addresses", "--hostname-override"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%s is not named in %q", want, r.stderr)
		}
	}
}

// TestStdin renders what standard input says, and reports what it skips.
func TestStdin(t *testing.T) {
	r := execute(service+"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n", "render", "-f", "-")
	if r.code != 0 || !strings.Contains(r.stdout, `10.96.0.10 . tcp . 80 comment "default/web:http" : 2:`) {
		t.Errorf("code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "Deployment") {
		t.Errorf("the skipped Deployment should be one warning: %q", r.stderr)
	}
}

// TestDiffExitCodes walks through diff and apply: 1 with changes, 0 without.
func TestDiffExitCodes(t *testing.T) {
	ns := netlab.TestNamespace(t)
	path := writeFile(t, service)
	if r := in(t, ns, "diff", "-f", path); r.code != cli.CodeNo || !strings.Contains(r.stdout, "+ map services       10.96.0.10 . tcp . 80 : 2:") {
		t.Fatalf("first diff: code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if g := ns.TestGeneration(t); g != ns.TestGeneration(t) {
		t.Fatal("the generation moves by itself")
	}
	if r := in(t, ns, "apply", "-f", path); r.code != 0 || !strings.Contains(r.stdout, " to add, 0 to change, 0 to delete.") {
		t.Fatalf("apply: code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	before := ns.TestGeneration(t)
	for _, args := range [][]string{{"diff", "-f", path}, {"apply", "-f", path}} {
		if r := in(t, ns, args...); r.code != 0 || r.stdout != "No changes.\n" {
			t.Errorf("%s: code %d, %q", args[0], r.code, r.stdout)
		}
	}
	if after := ns.TestGeneration(t); after != before {
		t.Errorf("nothing changed, but the generation went from %d to %d", before, after)
	}
	changed := writeFile(t, strings.Replace(service, "10.128.1.2", "10.128.1.9", 1))
	r := in(t, ns, "diff", "-f", changed, "-o", "json")
	if r.code != cli.CodeNo || strings.Count(r.stdout, `"kind": "element"`) != 1 || !strings.Contains(r.stdout, `10.128.1.9 . 8080`) {
		t.Errorf("diff of one endpoint: code %d, %s", r.code, r.stdout)
	}
	if r := in(t, ns, "diff", "-f", changed, "--color", "always"); !strings.Contains(r.stdout, "\x1b[33m  ~ map endpoints") {
		t.Errorf("no colour in %q", r.stdout)
	}
	if r := in(t, ns, "cleanup"); r.code != 0 || !strings.Contains(r.stdout, "- table") {
		t.Errorf("cleanup: code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if r := in(t, ns, "cleanup"); r.code != 0 || r.stdout != "No changes.\n" {
		t.Errorf("second cleanup: code %d, %q", r.code, r.stdout)
	}
}

// TestBadInputs gives every bad input to the commands that write: each fails
// with its exit code and a message that names the file, and the kernel stays as
// it is.
func TestBadInputs(t *testing.T) {
	ns := netlab.TestNamespace(t)
	if r := in(t, ns, "apply", "-f", writeFile(t, service)); r.code != 0 {
		t.Fatal(r.stderr)
	}
	before := ns.TestGeneration(t)
	inputs, err := filepath.Glob("../../internal/source/files/testdata/bad/*.[yj]*")
	if err != nil || len(inputs) < 30 {
		t.Fatalf("%d bad inputs, %v", len(inputs), err)
	}
	inputs = append(inputs, "missing.yaml", t.TempDir())
	for _, path := range inputs {
		for _, command := range []string{"apply", "diff", "run"} {
			r := in(t, ns, command, "-f", path)
			if r.code != failure(command) || r.stdout != "" || !strings.Contains(r.stderr, "nftproxy: ") || !strings.Contains(r.stderr, path) {
				t.Errorf("%s -f %s: code %d, %q", command, path, r.code, r.stderr)
			}
		}
	}
	if after := ns.TestGeneration(t); after != before {
		t.Errorf("bad input changed the kernel: generation %d after %d", after, before)
	}
}

// TestFlagsAreKnown keeps kube-proxy's names for the flags that it has too.
func TestFlagsAreKnown(t *testing.T) {
	for _, name := range []string{"render", "diff", "apply", "run"} {
		c := commandOf(t, name)
		for _, name := range []string{"hostname-override", "bind-address", "cluster-cidr", "nodeport-addresses", "v", "logging-format"} {
			if c.Flags().Lookup(name) == nil {
				t.Errorf("%s has no flag --%s", c.Name(), name)
			}
		}
	}
}

// commandOf returns a command of the program.
func commandOf(t *testing.T, words ...string) *cobra.Command {
	t.Helper()
	c, rest, err := rootCommand().Find(words)
	if err != nil || len(rest) > 0 {
		t.Fatalf("no command %q: %v", words, err)
	}
	return c
}
