// Command demo shows what nftproxy does, with real packets: it builds a small network out of
// namespaces, lets nftproxy balance HTTP requests, and then changes Services, attacks
// addresses and kills processes. It fails if anything is not as it says, so it is a check as
// well.
//
// Usage, as root: demo NFTPROXY SERVICES.YAML
//
// On a terminal it waits for Enter after each step. The environment variable STEP
// selects one step, by its number or name.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func main() {
	d := &demo{out: os.Stdout, paint: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == ""}
	if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		d.keys = bufio.NewReader(os.Stdin)
	}
	interrupted := d.closeOnSignal()
	stay := func() {
		select {
		case <-interrupted:
			select {} // the handler ends the process
		default:
		}
	}
	defer stay() // a step may panic while everything is removed
	err := d.play(os.Args[1:], os.Getenv("STEP"))
	stay()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo failed:", err)
		os.Exit(1)
	}
}

var errClosed = errors.New("interrupted")

// demo is one run of the show.
type demo struct {
	out   io.Writer
	paint bool
	keys  *bufio.Reader // nil: no pauses

	lab    *netlab.Lab
	binary string // nftproxy
	dir    string // of the input file
	sample string // its content

	daemon  *proxy // nil: none runs
	servers map[*netlab.Host]io.Closer
	closing sync.Mutex // keeps what is to be closed from appearing meanwhile
	closed  bool
}

// closeOnSignal removes everything when the process is interrupted. The channel is
// closed then.
func (d *demo) closeOnSignal() <-chan struct{} {
	signals, interrupted := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		close(interrupted)
		fmt.Fprintln(os.Stderr, "\ninterrupted; everything is removed")
		_ = d.close()
		os.Exit(130) // as a shell reports SIGINT
	}()
	return interrupted
}

// play shows all steps, or the selected one.
func (d *demo) play(args []string, selected string) (err error) {
	if len(args) != 2 {
		return errors.New("usage: demo NFTPROXY SERVICES.YAML")
	}
	steps, err := choose(selected)
	if err != nil {
		return err
	}
	if d.binary, err = filepath.Abs(args[0]); err != nil {
		return err
	}
	sample, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	d.sample = string(sample)
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.build(); err != nil {
		return err
	}
	if err := d.write(inputName, d.sample); err != nil {
		return err
	}
	for i, s := range steps {
		if err := d.show(s); err != nil {
			return fmt.Errorf("step %s: %w", s.name, err)
		}
		if i < len(steps)-1 {
			if err := d.wait(); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(d.out, "\nAll checks passed.")
	return nil
}

// build makes the network, its servers and a directory for the input file.
func (d *demo) build() (err error) {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed {
		return errClosed
	}
	if d.dir, err = os.MkdirTemp("", "nftproxy-demo-"); err != nil {
		return err
	}
	if d.lab, err = netlab.New(pods); err != nil {
		return err
	}
	d.servers = make(map[*netlab.Host]io.Closer)
	for _, pod := range d.lab.Pods {
		if err := d.serve(pod); err != nil {
			return err
		}
	}
	return nil
}

// close removes everything, once. Steps that still run then fail.
func (d *demo) close() (err error) {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.daemon.kill()
	if d.lab != nil {
		err = d.lab.Close()
	}
	if d.dir != "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

// wait waits for the reader.
func (d *demo) wait() error {
	if d.keys == nil {
		return nil
	}
	fmt.Fprint(d.out, d.styled(dim, "\nEnter: next step  Ctrl-C: end "))
	if _, err := d.keys.ReadString('\n'); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
