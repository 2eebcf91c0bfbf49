// Command screenshots runs commands of nftproxy on a small network of namespaces,
// with a daemon and real requests, and steps of the demo, and draws their terminals:
// docs/images/terminal-*.svg.
//
// Usage, as root in the repository: screenshots NFTPROXY DIRECTORY
//
// "screenshots -texts TEXTS DIRECTORY" draws sessions that were recorded elsewhere: each file NAME.txt in
// TEXTS has a command line, and below it what the command wrote to the terminal.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func main() {
	if err := shoot(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// shots are the pictures, by name, with their command lines and the number of rows
// that are shown. A command that exits with neither 0 nor 1 fails.
var shots = []struct {
	name, args string
	rows       int
}{
	{"status", "status", 40},
	{"describe", "describe shop/web", 40},
	{"explain", "explain --from 192.0.2.2 tcp 203.0.113.10:80", 26},
	{"diff", "diff --from services.yaml -f new.yaml --hostname-override node-1", 40},
	{"check", "check", 40},
}

const (
	columns  = 128
	patience = 20 * time.Second

	topRows = 20
	topTime = 8 * time.Second // before and after a change
)

// studio is the network in which the commands run.
type studio struct {
	lab    *netlab.Lab
	binary string
	dir    string // of the input files
}

func shoot(args []string) (err error) {
	if len(args) == 3 && args[0] == "-texts" {
		return drawTexts(args[1], args[2])
	}
	if len(args) != 2 {
		return errors.New("usage: screenshots NFTPROXY DIRECTORY, or screenshots -texts TEXTS DIRECTORY")
	}
	binary, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nftproxy-screenshots-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, text := range files() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	lab, err := netlab.New(4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	s := &studio{lab, binary, dir}
	daemon, err := s.serve()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.Process.Signal(syscall.SIGTERM), daemon.Wait()) }()
	if err := s.shoot(args[1]); err != nil {
		return err
	}
	return shootDemo(binary, args[1])
}

// shoot takes the pictures of a running daemon.
func (s *studio) shoot(directory string) error {
	output, err := s.top()
	if err != nil {
		return err
	}
	if err := s.requests(20); err != nil { // after the change
		return err
	}
	if err := save(directory, "top", picture("$ nftproxy top", show(output, topRows), topRows+1)); err != nil {
		return err
	}
	for _, shot := range shots {
		if shot.name == "check" {
			if err := s.stopForwarding(); err != nil {
				return err
			}
		}
		output, err := s.nftproxy(strings.Fields(shot.args))
		if err != nil {
			return err
		}
		if err := save(directory, shot.name, picture("$ nftproxy "+shot.args, parse(output), shot.rows)); err != nil {
			return err
		}
	}
	return nil
}

// top returns the output of "nftproxy top" while requests arrive.
func (s *studio) top() (string, error) {
	stop := make(chan struct{})
	failed := make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				failed <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err := s.requests(1); err != nil {
				failed <- err
				return
			}
		}
	}()
	cmd := exec.Command(s.binary, "top")
	cmd.Dir = s.dir
	output, err := record(cmd, s.lab.Node.Start, func(tty *os.File) {
		time.Sleep(topTime)
		_ = s.copy("new.yaml", "services.yaml")
		time.Sleep(topTime)
		_, _ = tty.WriteString("q") // the command would not end without it
	})
	close(stop)
	err = errors.Join(err, <-failed, s.copy("old.yaml", "services.yaml"))
	time.Sleep(time.Second) // until the daemon has it
	return output, err
}

// shootDemo takes pictures of steps of the demo.
func shootDemo(binary, dir string) error {
	for _, step := range []string{"flush", "kill"} {
		output, err := demo(binary, step)
		if err != nil {
			return err
		}
		output, _, _ = strings.Cut(output, "All checks passed.")
		if err := save(dir, "demo-"+step, picture("$ make demo STEP="+step, parse(output), 40)); err != nil {
			return err
		}
	}
	return nil
}

// drawTexts draws a picture of each recorded session.
func drawTexts(texts, dir string) error {
	files, err := filepath.Glob(filepath.Join(texts, "*.txt"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is no session in %s", texts)
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		command, output, _ := strings.Cut(string(text), "\n")
		if err := save(dir, strings.TrimSuffix(filepath.Base(file), ".txt"), picture(command, parse(output), 40)); err != nil {
			return err
		}
	}
	return nil
}

func save(dir, name string, picture []byte) error {
	return os.WriteFile(filepath.Join(dir, "terminal-"+name+".svg"), picture, 0o644)
}

// serve starts servers on the pods and the daemon on the node, and sends requests.
func (s *studio) serve() (*exec.Cmd, error) {
	if err := s.lab.EchoOnPods(8080); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	daemon := exec.Command(s.binary, "run", "-f", "services.yaml", "--hostname-override", "node-1", "--service-metrics", "--endpoint-metrics")
	daemon.Dir, daemon.Stdout, daemon.Stderr = s.dir, log, log
	if err := s.lab.Node.Start(daemon); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(patience)
	for {
		err := s.lab.Node.Run(exec.Command(s.binary, "status", "-o", "json"))
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("nftproxy is not ready: %w\n%s", err, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return daemon, s.requests(20)
}

// requests gives the counters something to count.
func (s *studio) requests(times int) error {
	for to, n := range map[string]int{"203.0.113.10:80": 5, "10.96.0.10:80": 2, "10.96.0.20:80": 1} {
		for range n * times {
			if _, err := s.lab.Client.Ask("tcp", netip.MustParseAddrPort(to), patience); err != nil {
				return fmt.Errorf("request to %s: %w", to, err)
			}
		}
	}
	return nil
}

// stopForwarding gives the command "check" something to find.
func (s *studio) stopForwarding() error {
	return s.lab.Node.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0\n"), 0) })
}

func (s *studio) copy(from, to string) error {
	text, err := os.ReadFile(filepath.Join(s.dir, from))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, to), text, 0o644)
}

// nftproxy runs a command on the node and returns its output to the terminal.
func (s *studio) nftproxy(args []string) (string, error) {
	cmd := exec.Command(s.binary, args...)
	cmd.Dir = s.dir
	return record(cmd, s.lab.Node.Start, nil)
}

// demo returns the output of a step of the demo.
func demo(binary, step string) (string, error) {
	cmd := exec.Command("go", "run", "./demo", binary, "demo/services.yaml")
	cmd.Env = append(os.Environ(), "STEP="+step)
	return record(cmd, (*exec.Cmd).Start, nil)
}

// record starts a command with a terminal for its output, and returns that output. keys, if
// any, types into the terminal.
func record(cmd *exec.Cmd, start func(*exec.Cmd) error, keys func(tty *os.File)) (string, error) {
	ours, its, err := pty.Open()
	if err != nil {
		return "", err
	}
	defer ours.Close()
	if err := pty.Setsize(ours, &pty.Winsize{Rows: topRows, Cols: columns}); err != nil {
		return "", errors.Join(err, its.Close())
	}
	cmd.Stdout, cmd.Stderr = its, its
	if keys != nil {
		cmd.Stdin = its
	}
	cmd.Env = append(cmd.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	err = start(cmd)
	its.Close()
	if err != nil {
		return "", err
	}
	if keys != nil {
		go keys(ours)
	}
	output, _ := io.ReadAll(ours) // the error is that the program has closed its side
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, output)
	}
	return string(output), nil
}
