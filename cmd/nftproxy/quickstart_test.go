package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// standFor in the environment makes the test binary a program of that name.
const standFor = "NFTPROXY_TEST_STANDS_FOR"

// standIns are the programs that a reader of the pages has besides the shell's.
var standIns = map[string]func([]string) int{
	"nftproxy at a socket": squatSocket,
	"curl": func(args []string) int {
		client := http.Client{Timeout: 10 * time.Second}
		r, err := client.Get(args[len(args)-1])
		if err == nil {
			_, err = io.Copy(os.Stdout, r.Body)
		}
		return codeOf(err)
	},
	"python3": func(args []string) int { // -m http.server PORT --bind ADDRESS [--directory DIRECTORY]
		directory := "."
		if len(args) > 6 {
			directory = args[6]
		}
		return codeOf(http.ListenAndServe(net.JoinHostPort(args[4], args[2]), http.FileServer(http.Dir(directory))))
	},
}

func codeOf(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// reader runs the commands of a page in a shell, in a namespace of its own.
type reader struct {
	t    *testing.T
	ns   *netlab.Namespace
	dir  string
	env  []string
	in   io.Writer
	out  *bufio.Reader
	runs *exec.Cmd // nftproxy run, in a terminal of its own
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, ns: netlab.TestLab(t, 0).Node.Namespace, dir: t.TempDir()}
	// The machine has a default route, as a machine in a network has.
	r.ns.TestScript(t, "ip route replace default dev lo")
	bin := t.TempDir()
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := filepath.Abs("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"sudo":     `exec "$@"`,
		"make":     `grep -q "^$1:" ` + makefile,
		"nftproxy": beProgram + "=1 exec " + program + ` "$@"`,
		"curl":     standFor + "=curl exec " + program + ` "$@"`,
		"python3":  standFor + "=python3 exec " + program + ` "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBERNETES_SERVICE_HOST=", "HOME="+bin)
	r.shell()
	return r
}

// command returns a command for the namespace, in a process group of its own.
func (r *reader) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir, c.Env = r.dir, r.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// begin starts a command and ends it, with all that it has started, after the test.
func (r *reader) begin(c *exec.Cmd) {
	r.t.Helper()
	if err := r.ns.Start(c); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // they may have ended
		_ = c.Wait()
	})
}

func (r *reader) shell() {
	r.t.Helper()
	c := r.command("bash")
	in, err := c.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	c.Stdout, c.Stderr = write, write
	r.begin(c)
	write.Close()
	r.t.Cleanup(func() { read.Close() })
	r.in, r.out = in, bufio.NewReader(read)
}

// endOfLine is what the shell prints after each line.
var endOfLine = regexp.MustCompile(`^::(\d+)\n$`)

// line runs a line and returns what it prints and its exit code.
func (r *reader) line(text string) (out, code string) {
	r.t.Helper()
	if _, err := fmt.Fprintf(r.in, "%s\necho ::$?\n", text); err != nil {
		r.t.Fatal(err)
	}
	for {
		got, err := r.out.ReadString('\n')
		if err != nil {
			r.t.Fatalf("%s: %v after\n%s", text, err, out)
		}
		if m := endOfLine.FindStringSubmatch(got); m != nil {
			return out, m[1]
		}
		if !strings.Contains(got, " Terminated ") { // what the shell says about a job that was killed
			out += got
		}
	}
}

// run starts a line in a terminal of its own, and waits until the machine serves.
func (r *reader) run(line string) {
	r.t.Helper()
	r.runs = r.command("bash", "-c", "exec "+line)
	log := &netlab.LogBuffer{}
	r.runs.Stdout, r.runs.Stderr = log, log
	r.begin(r.runs)
	eventually(r.t, line, func() bool {
		out, _ := r.line("nftproxy status")
		return strings.HasPrefix(out, "healthy")
	})
	eventually(r.t, line+" prints that rules are applied", func() bool { return strings.Contains(log.String(), `msg="rules applied"`) })
}

// interrupt presses Ctrl-C.
func (r *reader) interrupt() {
	r.t.Helper()
	if r.runs == nil {
		return
	}
	if err := syscall.Kill(-r.runs.Process.Pid, syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	_ = r.runs.Wait() // the code does not matter
	r.runs = nil
}

// follow runs the blocks of commands of a text. Seen gets each line with its output.
func (r *reader) follow(text string, seen func(line, out string)) (n int) {
	r.t.Helper()
	for _, b := range shellBlock.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(b[1], "\\\n", " ")) {
			line = strings.TrimSpace(line)
			n++
			switch {
			case strings.HasPrefix(line, "sudo nftproxy run "):
				r.run(line)
				continue
			case strings.HasPrefix(line, "sleep "):
				eventually(r.t, "a failed check", func() bool {
					out, _ := r.line("nftproxy status")
					return strings.Contains(out, "CheckFailing")
				})
				continue
			case strings.Contains(line, "nftproxy cleanup"):
				r.interrupt()
			}
			out, code := r.line(line)
			want := "0"
			if strings.Contains(line, "nftproxy diff") {
				want = "1" // there are changes
			}
			if code != want {
				r.t.Errorf("%s: code %s, want %s\n%s", line, code, want, out)
			}
			if m := listener.FindStringSubmatch(line); m != nil {
				r.listens(m[2] + ":" + m[1])
			}
			seen(line, out)
		}
	}
	return n
}

// listener matches a line that starts a server.
var listener = regexp.MustCompile(`http\.server (\d+) --bind (\S+)`)

// listens waits until a server answers.
func (r *reader) listens(at string) {
	r.t.Helper()
	eventually(r.t, at, func() bool {
		_, code := r.line("curl -s http://" + at + " >/dev/null")
		return code == "0"
	})
}

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")

// answers fails the test unless all lines of an output are answers of servers.
func (r *reader) answers(line, out string, servers ...string) {
	r.t.Helper()
	for got := range strings.Lines(out) {
		if !slices.Contains(servers, strings.TrimSpace(got)) {
			r.t.Errorf("%s: %q answers, want one of %q", line, got, servers)
		}
	}
	if n := strings.Count(out, "\n"); n == 0 {
		r.t.Errorf("%s: no answer", line)
	}
}

// TestQuickStart runs the commands of docs/quick-start.md in the order in which they stand.
func TestQuickStart(t *testing.T) {
	page, r := readText(t, "../../docs/quick-start.md"), newReader(t)
	requests := 0
	n := r.follow(page, func(line, out string) {
		switch {
		case strings.HasPrefix(line, "nftproxy new"):
			file, err := os.ReadFile(filepath.Join(r.dir, "web.yaml"))
			if err != nil || !strings.Contains(page, "```yaml\n"+string(file)+"```\n") {
				t.Errorf("the page does not show what %s writes (%v):\n%s", line, err, file)
			}
		case strings.Contains(line, "curl") && requests == 0:
			requests++
			r.answers(line, out, "server one", "server two")
			eventually(t, "both servers", func() bool {
				more, _ := r.line(line)
				out += more
				return strings.Contains(out, "one") && strings.Contains(out, "two")
			})
		case strings.Contains(line, "curl"):
			requests++
			r.answers(line, out, "server one")
		case line == "nftproxy describe web":
			if !strings.Contains(out, "its health check fails: ") {
				t.Errorf("%s:\n%s", line, out)
			}
		case strings.Contains(line, "explain"):
			if !strings.HasPrefix(out, "tcp 203.0.113.10:80 from this machine") || !strings.Contains(out, ": forwarded\n") {
				t.Errorf("%s:\n%s", line, out)
			}
		}
	})
	if n < 25 || requests != 2 {
		t.Errorf("%d lines, %d of requests", n, requests)
	}
	if out, _ := r.line("ip address show to 10.128.0.0/16"); out != "" {
		t.Errorf("the page leaves\n%s", out)
	}
	if out, code := r.line("nftproxy status"); code != "2" {
		t.Errorf("rules are left:\n%s", out)
	}
}

// TestReadmeStart: the Balance of the README is served as the commands after it say.
func TestReadmeStart(t *testing.T) {
	_, section, _ := strings.Cut(readText(t, "../../README.md"), "\n## Balance a service in five lines\n")
	section, _, _ = strings.Cut(section, "\n## ")
	file := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindStringSubmatch(section)
	if file == nil || strings.Count(file[1], "\n") != 5 {
		t.Fatalf("five lines, %q", file)
	}
	r := newReader(t)
	if err := os.WriteFile(filepath.Join(r.dir, "web.yaml"), []byte(file[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"2", "3", "4"} {
		r.serve("10.128.0." + host)
	}
	requests := 0
	r.follow(section, func(line, out string) {
		if strings.Contains(line, "curl") {
			requests++
			r.answers(line, out, "10.128.0.2", "10.128.0.3", "10.128.0.4")
		}
	})
	if requests != 1 {
		t.Errorf("%d requests", requests)
	}
}

// serve starts a server that answers with its address, which the machine gets.
func (r *reader) serve(address string) {
	r.t.Helper()
	dir := filepath.Join(r.dir, address)
	err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "index.html"), []byte(address+"\n"), 0o600))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, line := range []string{
		"ip address add " + address + "/32 dev lo",
		"python3 -m http.server 8080 --bind " + address + " --directory " + dir + " >/dev/null 2>&1 &",
	} {
		if out, code := r.line(line); code != "0" {
			r.t.Fatalf("%s: %s", line, out)
		}
	}
	r.listens(address + ":8080")
}
