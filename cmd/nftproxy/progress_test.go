package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestProgress: 12.68, on a terminal a command that takes long shows what it does, and
// erases that in the end.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		shows string
	}{
		"render": {[]string{"render", "-f", "-"}, `reading -, [1-9][0-9]* s`},
		"diff":   {[]string{"diff", "-f", "-", "--from", writeFile(t, service)}, `reading -, [1-9][0-9]* s`},
		"from":   {[]string{"diff", "--from", "-", "-f", writeFile(t, service)}, `reading -, [1-9][0-9]* s`},
		"apply":  {[]string{"apply", "-f", "-"}, `reading -, [1-9][0-9]* s`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := netlab.TestNamespace(t)
			master, slave, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			input, feed := io.Pipe()
			cmd := exec.Command(os.Args[0], c.args...)
			cmd.Env = append(os.Environ(), beProgram+"=1", "TERM=xterm")
			cmd.Stdin, cmd.Stderr = input, slave
			var stdout netlab.LogBuffer
			cmd.Stdout = &stdout
			if err := ns.Start(cmd); err != nil {
				t.Fatal(err)
			}
			_ = slave.Close()
			var screen netlab.LogBuffer
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(&screen, master) // ends with an error when the program does
			}()
			eventually(t, "progress", func() bool { return regexp.MustCompile(c.shows).MatchString(screen.String()) })
			_, _ = io.WriteString(feed, service)
			_ = feed.Close()
			_ = cmd.Wait() // diff ends with 1
			<-read
			if got := screen.String(); !strings.HasSuffix(got, "\r\x1b[K") || strings.Contains(got, "\n") {
				t.Errorf("the screen has %q in the end", got)
			}
			if cmd.ProcessState.ExitCode() == cli.CodeError || stdout.String() == "" {
				t.Errorf("code %d, output %q", cmd.ProcessState.ExitCode(), stdout.String())
			}
		})
	}
}

// TestColours: what each command writes to a terminal has colours, unless NO_COLOR or the
// terminal forbids it; --color decides over both. All commands decide alike.
func TestColours(t *testing.T) {
	old, path := writeFile(t, service), writeFile(t, strings.Replace(service, "10.128.1.2", "10.128.1.9", 1))
	list := filepath.Join(t.TempDir(), "drain.yaml")
	for _, command := range []string{
		"diff --from " + old + " -f " + path, "apply -f " + path, "validate -f " + path, "cleanup",
		"status", "describe default/web -f " + path, "explain tcp 10.96.0.10:80", "drain 10.128.1.2 --force --drain-file " + list,
		"undrain 10.128.1.2 --drain-file " + list,
	} {
		for i, c := range []struct {
			env, flag string
			want      bool
		}{
			{"TERM=xterm", "", true},
			{"NO_COLOR=1", "", false},
			{"TERM=dumb", "", false},
			{"NO_COLOR=", "", true},
			{"NO_COLOR=1", "--color=always", true},
			{"TERM=xterm", "--color=never", false},
		} {
			if i > 1 && command != "status" {
				continue
			}
			ns := netlab.TestNamespace(t)
			if r := in(t, ns, "apply", "-f", old); r.code != 0 {
				t.Fatal(r.stderr)
			}
			if strings.HasPrefix(command, "undrain") {
				if r := in(t, ns, "drain", "10.128.1.2", "--force", "--drain-file", list); r.code != 0 {
					t.Fatal(r.stderr)
				}
			}
			if got := onTerminal(t, ns, strings.Fields(command+" "+c.flag), c.env); strings.Contains(got, "\x1b[") != c.want {
				t.Errorf("%s %s nftproxy %s: %q", c.env, c.flag, command, got)
			}
		}
	}
}

// onTerminal returns what the program writes to a terminal.
func onTerminal(t *testing.T, ns *netlab.Namespace, args []string, env string) string {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beProgram+"=1", "TERM=xterm", env)
	cmd.Stdout, cmd.Stderr = slave, slave
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	text, _ := io.ReadAll(master) // ends with an error when the program does
	_ = cmd.Wait()                // diff ends with 1
	return string(text)
}
