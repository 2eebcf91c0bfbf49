package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// daemon is nftproxy on a node of its own, and the file that it follows.
type daemon struct {
	*netlab.Lab
	program string
	dir     string
	texts   []string // of the objects of the file
	cmd     *exec.Cmd
	log     netlab.LogBuffer
}

// isolated is the flag of the second kind of daemon that is measured.
const isolated = "--isolate-files"

// newDaemon starts nftproxy, and waits until it has applied its rules.
func (p *plan) newDaemon(ctx context.Context, flag string) (d *daemon, err error) {
	d = &daemon{program: p.nftproxy, texts: sourcetest.ManyTexts(p.services)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.dir, err = os.MkdirTemp("", "nftproxy-files-"); err != nil {
		return d, err
	}
	if d.Lab, err = netlab.New(0); err != nil {
		return d, err
	}
	if err := d.write(sourcetest.DocumentsOf(d.texts)); err != nil {
		return d, err
	}
	args := []string{"run", "-f", d.file(), "--hostname-override", d.Node.Name, "--healthz-bind-address", health,
		"--drain-file", filepath.Join(d.dir, "drain.yaml"), "--changes-file", filepath.Join(d.dir, "changes.yaml"),
		"--control-socket", filepath.Join(d.dir, "control.sock")}
	if flag != "" {
		args = append(args, flag)
	}
	d.cmd = exec.Command(d.program, args...)
	d.cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+filepath.Join(d.dir, "state"), "RUNTIME_DIRECTORY="+filepath.Join(d.dir, "run"), "KUBERNETES_SERVICE_HOST=")
	d.cmd.Stderr = &d.log
	if err := d.Node.Start(d.cmd); err != nil {
		return d, err
	}
	return d, d.await(ctx, "its first rules", func() (bool, error) {
		client := http.Client{Transport: &http.Transport{DialContext: d.Node.DialContext, DisableKeepAlives: true}}
		answer, err := client.Get("http://" + health + "/healthz")
		if err != nil {
			return false, nil // not yet
		}
		return answer.StatusCode == http.StatusOK, answer.Body.Close()
	})
}

// health is the address of the daemon's health server.
const health = "127.0.0.1:10256"

func (d *daemon) file() string { return filepath.Join(d.dir, "services.yaml") }

// write replaces the file in one step.
func (d *daemon) write(text []byte) error {
	next := d.file() + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return os.Rename(next, d.file())
}

// edit changes the address of a Service in the middle of the file, and waits until the kernel has it.
func (d *daemon) edit(ctx context.Context, i int) error {
	before, err := d.Node.Generation()
	if err != nil {
		return err
	}
	if err := d.write(sourcetest.DocumentsOf(d.edited(i))); err != nil {
		return err
	}
	return d.await(ctx, "the rules of an edit", func() (bool, error) {
		now, err := d.Node.Generation()
		return now != before, err
	})
}

// edited returns the texts after edit number i: each is another one than before.
func (d *daemon) edited(i int) []string {
	all := append([]string(nil), d.texts...)
	middle := len(all) / 4 * 2 // a Service, which comes before its slice
	all[middle] = strings.ReplaceAll(all[middle], " 10.96.", fmt.Sprintf(" 10.%d.", 97+i))
	return all
}

// mistake makes a mistake in the file, and corrects it, with another edit.
func (d *daemon) mistake(ctx context.Context, i int) error {
	said := func(text string) func() (bool, error) {
		return func() (bool, error) { return strings.Contains(d.log.String(), text), nil }
	}
	text := sourcetest.DocumentsOf(d.edited(i))
	if err := d.write(bytes.Replace(text, []byte("    port: 80\n"), []byte("    port: eighty\n"), 1)); err != nil {
		return err
	}
	if err := d.await(ctx, "the mistake", said("cannot be used")); err != nil {
		return err
	}
	if err := d.edit(ctx, i); err != nil {
		return err
	}
	return d.await(ctx, "the correction", said("usable again"))
}

// status has nftproxy print the whole state of the daemon as JSON.
func (d *daemon) status() error {
	cmd := exec.Command(d.program, "status", "-o", "json")
	cmd.Stdout = new(bytes.Buffer)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	if err := d.Node.Run(cmd); err != nil {
		return fmt.Errorf("status: %w: %s", err, problem.Bytes())
	}
	return nil
}

// patience is longer than anything takes.
const patience = 2 * time.Minute

// await waits for a state of the daemon.
func (d *daemon) await(ctx context.Context, what string, reached func() (bool, error)) error {
	const step = 5 * time.Millisecond
	for until := time.Now().Add(patience); ; time.Sleep(step) {
		ok, err := reached()
		switch {
		case ok || err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(until):
			return fmt.Errorf("nftproxy has not reached %s after %v\n%s", what, patience, d.log.String())
		}
	}
}

// settle waits until the daemon does nothing, and returns the processor time that it has used.
func (d *daemon) settle(ctx context.Context) (used time.Duration, err error) {
	const looks = 60 // that find the same: nothing waits for a busy processor so long
	same := 0
	return used, d.await(ctx, "rest", func() (bool, error) {
		now, err := results.ProcessorTime(d.cmd.Process.Pid)
		if same++; now != used {
			used, same = now, 0
		}
		return same >= looks, err
	})
}

func (d *daemon) close() (err error) {
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait() // the error says that it was killed
	}
	if d.Lab != nil {
		err = d.Lab.Close()
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
