package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	inputName = "services.yaml"
	nodeName  = "node-1"
	patience  = 10 * time.Second
)

// command returns nftproxy with a subcommand, on an input file or on none.
func (d *demo) command(name string, file ...string) *exec.Cmd {
	args := []string{name}
	if len(file) > 0 {
		args = append(args, "-f", file[0], "--hostname-override", nodeName, "--cluster-cidr", "10.128.0.0/24")
	}
	cmd := exec.Command(d.binary, args...)
	cmd.Dir = d.dir
	return cmd
}

// nftproxy runs a subcommand on the node and shows what it prints.
func (d *demo) nftproxy(status int, name string, file ...string) error {
	cmd := d.command(name, file...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := d.lab.Node.Run(cmd); cmd.ProcessState.ExitCode() != status {
		return fmt.Errorf("nftproxy %s: %w, want exit status %d", name, err, status)
	}
	return nil
}

// replace puts a new input file in the place of the old one.
func (d *demo) replace(text string) error {
	next := filepath.Join(d.dir, "next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(d.dir, inputName))
}

// change shows what a new input file would change, and lets the daemon take
// it up.
func (d *demo) change(p *proxy, text string) error {
	const preview = "preview.yaml"
	if err := os.WriteFile(filepath.Join(d.dir, preview), []byte(text), 0o644); err != nil {
		return err
	}
	if err := d.nftproxy(1, "diff", preview); err != nil {
		return err
	}
	fmt.Println()
	if err := d.replace(text); err != nil {
		return err
	}
	return p.applied()
}

// withEndpoints leaves the first n endpoints in the input.
func withEndpoints(text string, n int) string {
	const key = "endpoints:\n"
	head, list, _ := strings.Cut(text, key)
	if n == 0 {
		return head + "endpoints: []\n"
	}
	endpoints := slices.Collect(strings.Lines(list))
	return head + key + strings.Join(endpoints[:n], "")
}

// proxy is a running "nftproxy run".
type proxy struct {
	cmd *exec.Cmd
	log chan string
}

func (d *demo) start() (*proxy, error) {
	p := &proxy{d.command("run", inputName), make(chan string)}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.lab.Node.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start nftproxy: %w", err)
	}
	go func() {
		defer close(p.log)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.log <- lines.Text()
		}
	}()
	return p, nil
}

// applied shows the log until it says that rules have been applied.
func (p *proxy) applied() error {
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-p.log:
			if !ok {
				return errors.New("nftproxy ended early")
			}
			fmt.Println(line)
			if strings.Contains(line, "rules applied") {
				fmt.Println()
				return nil
			}
		case <-deadline:
			return fmt.Errorf("nftproxy applied nothing within %v", patience)
		}
	}
}

// stop ends the daemon as service managers do.
func (p *proxy) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for line := range p.log {
		fmt.Println(line)
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("nftproxy run: %w", err)
	}
	return nil
}

// kill ends a daemon that stop has not ended.
func (p *proxy) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		for range p.log { // the reader must not be left waiting
		}
		_ = p.cmd.Wait()
	}
}
