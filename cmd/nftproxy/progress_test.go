package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlab"
)

// openTerminal returns both ends of a terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestProgress: 12.68, on a terminal a command that takes long shows what it does, and
// erases that in the end.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		shows string
	}{
		"render": {[]string{"render", "-f", "-"}, "reading -, 1 s"},
		"diff":   {[]string{"diff", "-f", "-", "--from", writeFile(t, service)}, "reading -, 1 s"},
		"from":   {[]string{"diff", "--from", "-", "-f", writeFile(t, service)}, "reading -, 1 s"},
		"apply":  {[]string{"apply", "-f", "-"}, "reading -, 1 s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := netlab.TestNamespace(t)
			master, slave := openTerminal(t)
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
			eventually(t, "progress", func() bool { return strings.Contains(screen.String(), c.shows) })
			_, _ = io.WriteString(feed, service)
			_ = feed.Close()
			_ = cmd.Wait() // diff ends with 1
			<-read
			if got := screen.String(); !strings.HasSuffix(got, "\r\x1b[K") || strings.Contains(got, "\n") {
				t.Errorf("the screen has %q in the end", got)
			}
			if cmd.ProcessState.ExitCode() == exitError || stdout.String() == "" {
				t.Errorf("code %d, output %q", cmd.ProcessState.ExitCode(), stdout.String())
			}
		})
	}
}
