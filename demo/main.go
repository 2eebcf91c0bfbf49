// Command demo shows what nftproxy does, with real packets: it builds a small
// network out of namespaces, lets nftproxy balance HTTP requests over three
// endpoints, and takes the endpoints away. It fails if anything is not as it
// says, so it is a check as well.
//
// Usage, as root: demo NFTPROXY SERVICES.YAML
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/nftproxy/nftproxy/internal/netlab"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo failed:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	if len(args) != 2 {
		return errors.New("usage: demo NFTPROXY SERVICES.YAML")
	}
	binary, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	sample, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nftproxy-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lab, err := netlab.New(3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	d := &demo{lab: lab, binary: binary, dir: dir, terminal: term.IsTerminal(int(os.Stdout.Fd()))}
	return d.show(string(sample))
}

// demo is one run of the show.
type demo struct {
	lab      *netlab.Lab
	binary   string // nftproxy
	dir      string // of the input file
	terminal bool
	steps    int
}

func (d *demo) show(sample string) error {
	d.head("A client, a node, and three web servers behind it, each in a network namespace")
	if err := d.servers(); err != nil {
		return err
	}

	d.head("What is wanted: " + inputName)
	fmt.Print(sample)
	if err := d.replace(sample); err != nil {
		return err
	}
	d.head("What the kernel will get: nftproxy render -f " + inputName)
	if err := d.nftproxy(0, "render", inputName); err != nil {
		return err
	}
	if err := d.serveAndScale(sample); err != nil {
		return err
	}
	fmt.Println("\nAll checks passed.")
	return nil
}

// servers draws the network and starts the web servers.
func (d *demo) servers() error {
	left := fmt.Sprintf("client %s ── node %s ──", d.lab.Client.IPv4, d.lab.Node.IPv4)
	for i, pod := range d.lab.Pods {
		branch := "├"
		switch i {
		case 0:
			branch = "┬"
		case len(d.lab.Pods) - 1:
			branch = "└"
		}
		fmt.Printf("%s%s─ %s %s:%d\n", left, branch, pod.Name, pod.IPv4, serverPort)
		left = strings.Repeat(" ", utf8.RuneCountInString(left))
		if err := serve(pod); err != nil {
			return err
		}
	}
	return nil
}

// serveAndScale runs the daemon and takes the endpoints away.
func (d *demo) serveAndScale(sample string) error {
	d.head("nftproxy run -f " + inputName + ", and requests from the client")
	daemon, err := d.start()
	if err != nil {
		return err
	}
	defer daemon.kill()
	if err := daemon.applied(); err != nil {
		return err
	}
	if err := d.balanced(3); err != nil {
		return err
	}
	d.head("One endpoint is taken out of the file: nftproxy diff -f " + inputName)
	if err := d.scale(daemon, sample, 2); err != nil {
		return err
	}
	d.head("No endpoint is left")
	if err := d.scale(daemon, sample, 0); err != nil {
		return err
	}
	d.head("nftproxy ends; nftproxy cleanup removes its tables")
	if err := daemon.stop(); err != nil {
		return err
	}
	return d.nftproxy(0, "cleanup")
}

// scale leaves n endpoints and sends requests.
func (d *demo) scale(p *proxy, sample string, n int) error {
	if err := d.change(p, withEndpoints(sample, n)); err != nil {
		return err
	}
	if n == 0 {
		return d.refused()
	}
	return d.balanced(n)
}

// head prints a heading, after a pause for readers.
func (d *demo) head(text string) {
	if d.terminal && d.steps > 0 {
		time.Sleep(1500 * time.Millisecond)
	}
	d.steps++
	line := fmt.Sprintf("%d. %s", d.steps, text)
	if d.terminal && os.Getenv("NO_COLOR") == "" {
		line = "\x1b[1m" + line + "\x1b[0m"
	}
	fmt.Printf("\n%s\n\n", line)
}
