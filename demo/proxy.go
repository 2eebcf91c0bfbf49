package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	inputName = "services.yaml"
	nodeName  = "node-1"
	patience  = 2 * time.Minute // of a request: lost packets are sent again for longer than a busy machine needs
)

// arguments returns the arguments of a subcommand, with an input file or without one.
func arguments(name, file string, more ...string) []string {
	args := []string{name}
	if file != "" {
		args = append(args, "-f", file, "--hostname-override", nodeName, "--cluster-cidr", "10.128.0.0/24")
	}
	return append(args, more...)
}

// prompt prints a command as if it had been typed.
func (d *demo) prompt(format string, args ...any) {
	fmt.Fprintln(d.out, d.styled(cyan, "$ "+fmt.Sprintf(format, args...)))
}

// command prints a command of nftproxy, without the flags that all have.
func (d *demo) command(name, file string, more ...string) {
	words := append([]string{"nftproxy", name}, more...)
	if file != "" {
		words = append([]string{"nftproxy", name, "-f", file}, more...)
	}
	d.prompt("%s", strings.Join(words, " "))
}

// output shows a subcommand, runs it on the node, and returns its output.
func (d *demo) output(status int, name, file string, more ...string) (string, error) {
	d.command(name, file, more...)
	out, err := d.run(name, file, more...)
	var exit *exec.ExitError
	if code := 0; err == nil || errors.As(err, &exit) {
		if exit != nil {
			code = exit.ExitCode()
		}
		if code == status {
			return out, nil
		}
	}
	return "", fmt.Errorf("nftproxy %s: %w, want exit status %d\n%s", name, err, status, out)
}

// run runs a subcommand on the node, and returns its output.
func (d *demo) run(name, file string, more ...string) (string, error) {
	cmd := exec.Command(d.binary, arguments(name, file, more...)...)
	cmd.Dir = d.dir
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := d.lab.Node.Run(cmd)
	return out.String(), err
}

// write replaces a file, unless everything is being removed: it would be left.
func (d *demo) write(name, text string) error {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed {
		return errClosed
	}
	next := filepath.Join(d.dir, "next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(d.dir, name))
}

var planned = regexp.MustCompile(`(?m)^(\d+) to add, (\d+) to change, (\d+) to delete\.$`)

// plan shows what a new input file would change, and returns the numbers of added,
// changed and deleted objects.
func (d *demo) plan(text string) (numbers string, err error) {
	const preview = "next.yaml"
	if err := d.write(preview, text); err != nil {
		return "", err
	}
	var more []string
	if d.paint {
		more = []string{"--color=always"}
	}
	out, err := d.output(1, "diff", preview, more...)
	if err != nil {
		return "", err
	}
	fmt.Fprint(d.out, out)
	m := planned.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("the plan has no numbers:\n%s", out)
	}
	return strings.Join(m[1:], "/"), nil
}

// counts returns the numbers of added, changed and deleted objects in the log.
func counts(line string) string {
	return field(line, "added") + "/" + field(line, "changed") + "/" + field(line, "deleted")
}

// change lets the daemon follow a new input file, and returns its line in the log.
func (d *demo) change(text string) (string, error) {
	if err := d.write(inputName, text); err != nil {
		return "", err
	}
	return d.daemon.applied(io.Discard)
}

// withEndpoints leaves the first endpoints in the input.
func withEndpoints(text string, addresses ...string) string {
	const key = "endpoints:\n"
	head, _, _ := strings.Cut(text, key)
	if len(addresses) == 0 {
		return head + "endpoints: []\n"
	}
	return head + key + "- addresses: [" + strings.Join(addresses, "]\n- addresses: [") + "]\n"
}

// proxy is a running "nftproxy run".
type proxy struct {
	cmd *exec.Cmd
	log chan string
	out io.Writer // where the demo says that it waits
}

func (d *demo) startQuietly() error {
	if err := d.start(); err != nil {
		return err
	}
	_, err := d.daemon.applied(io.Discard)
	return err
}

func (d *demo) start() error {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed {
		return errClosed
	}
	p := &proxy{exec.Command(d.binary, arguments("run", inputName)...), make(chan string), d.out}
	p.cmd.Dir = d.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := d.lab.Node.Start(p.cmd); err != nil {
		return fmt.Errorf("start nftproxy: %w", err)
	}
	go func() {
		defer close(p.log)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.log <- lines.Text()
		}
	}()
	d.daemon = p
	return nil
}

// applied copies the log until it says that rules have been applied, and returns
// that line without the time.
func (p *proxy) applied(to io.Writer) (string, error) { return p.says(to, `"rules applied"`) }

// says copies the log until there is a message, and returns that line without the
// time.
func (p *proxy) says(to io.Writer, message string) (string, error) {
	wait := p.newWait("logged " + message)
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for {
		select {
		case line, ok := <-p.log:
			if !ok {
				return "", errors.New("nftproxy ended early")
			}
			_, text, _ := strings.Cut(line, " ")
			fmt.Fprintln(to, text)
			if strings.Contains(text, " msg="+message+" ") {
				return text, nil
			}
		case now := <-ticks.C:
			if err := wait.check(now); err != nil {
				return "", err
			}
		}
	}
}

// stop ends the daemon as service managers do.
func (p *proxy) stop(to io.Writer) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for line := range p.log {
		_, text, _ := strings.Cut(line, " ")
		fmt.Fprintln(to, text)
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("nftproxy run: %w", err)
	}
	return nil
}

// kill ends a daemon that stop has not ended. It does nothing if there is none.
func (p *proxy) kill() {
	if p != nil && p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		for range p.log { // the reader must not be left waiting
		}
		_ = p.cmd.Wait()
	}
}
