package kubelets

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// starter starts a command in namespaces.
type starter interface{ Start(cmd *exec.Cmd) error }

// Process is a program that runs until it is stopped.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	Log  string // file of its output
	done chan struct{}
}

// start starts a command whose output goes to a file, which is appended to.
func start(in starter, dir, name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, Cmd: cmd, Log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := in.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // Running reports the end
	}()
	return p, nil
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Stop sends SIGTERM, after ten seconds SIGKILL, and waits for the end.
func (p *Process) Stop() {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	if await.Pace(p.done, 10*time.Second) {
		p.Kill()
	}
}

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended
	<-p.done
}

// output runs a command and returns what it prints. The error has all of it.
func output(in starter, cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := in.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s%s", cmd, err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// waitFor calls f until it returns nil, the context ends, or a time is over.
func waitFor(ctx context.Context, limit time.Duration, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if !await.Pace(ctx.Done(), 200*time.Millisecond) {
			return fmt.Errorf("wait for %s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}
