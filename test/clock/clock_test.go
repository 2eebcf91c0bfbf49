//go:build guest

package clock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	echoPort = 8080
	health   = "127.0.0.1:10256"
	// patience is for machines that are emulated.
	patience = 2 * time.Minute
	// still is how long nothing may happen when nothing changes.
	still = 3 * time.Second
)

var web, sticky = netip.MustParseAddrPort("10.96.0.1:80"), netip.MustParseAddrPort("10.96.0.2:80")

// services has a Service that the first pods serve, and one with session
// affinity that all of them do.
const services = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ipFamilies: [IPv4], ports: [{port: 80, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: default}
spec: {clusterIP: 10.96.0.2, clusterIPs: [10.96.0.2], ipFamilies: [IPv4], sessionAffinity: ClientIP, ports: [{port: 80, protocol: TCP}]}
---
apiVersion: v1
kind: Node
metadata: {name: node}
`

const slice = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints:
`

// node is a laboratory with a running daemon.
type node struct {
	*netlab.Lab
	t       *testing.T
	file    string
	changes int // written to the file
	cmd     *exec.Cmd
	log     netlab.LogBuffer
	http    http.Client
}

// TestClockIsSet sets the clock of the machine forward and back, by a day and by
// decades. The daemon goes on: it applies changes, does nothing when there are
// none, and calls itself healthy. No connection and no client's affinity is
// lost.
func TestClockIsSet(t *testing.T) {
	n := start(t)
	began := time.Now()
	t.Cleanup(func() { _ = n.set(began.Round(0).Add(time.Since(began))) })
	flow, err := n.Client.Open("tcp", sticky, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	first, err := flow.Ask()
	if err != nil {
		t.Fatal(err)
	}
	serving := 0
	for _, step := range []struct {
		name string
		to   func() time.Time
	}{
		{"a day forward", func() time.Time { return time.Now().Add(24 * time.Hour) }},
		{"two days back", func() time.Time { return time.Now().Add(-48 * time.Hour) }},
		{"to 1970", func() time.Time { return time.Unix(24*60*60, 0) }},
		{"to 2040", func() time.Time { return time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"back to 2026", func() time.Time { return began }},
	} {
		t.Run(step.name, func(t *testing.T) {
			n.t = t
			if err := n.set(step.to()); err != nil {
				t.Fatal(err)
			}
			n.isStill()
			serving = 1 - serving
			n.write(serving)
			n.answersFrom(n.Pods[serving])
			n.isStill()
			for _, ask := range []func() (netlab.Answer, error){flow.Ask, func() (netlab.Answer, error) { return n.Client.Ask("tcp", sticky, 0) }} {
				if got, err := ask(); err != nil || got.Name != first.Name {
					t.Errorf("got %v, %v, want an answer of %s", got, err, first.Name)
				}
			}
			n.isHealthy()
			n.reportsNoFuture()
		})
	}
}

// TestStopped: a process that was stopped for a while, as on a suspended
// machine, applies the changes made in the meantime.
func TestStopped(t *testing.T) {
	n := start(t)
	for serving := range 2 {
		n.signal(syscall.SIGSTOP)
		n.write(1 - serving)
		if got, err := n.Client.Ask("tcp", web, 0); err != nil || got.Name != n.Pods[serving].Name {
			t.Errorf("while it is stopped: got %v, %v", got, err)
		}
		await.Span(still)
		n.signal(syscall.SIGCONT)
		n.answersFrom(n.Pods[1-serving])
		n.isHealthy()
		n.isStill()
	}
}

func start(t *testing.T) *node {
	t.Helper()
	lab := netlab.TestLab(t, 2)
	n := &node{Lab: lab, t: t, file: filepath.Join(t.TempDir(), "services.yaml")}
	n.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return lab.Node.DialContext(ctx, network, address)
	}}
	t.Cleanup(func() {
		if t.Failed() {
			fmt.Fprintf(t.Output(), "log of the daemon:\n%s\n", n.log.String())
		}
	})
	if err := lab.EchoOnPods(echoPort); err != nil {
		t.Fatal(err)
	}
	n.write(0)
	n.cmd = exec.Command(os.Getenv("NFTPROXY"), "run", "-f", n.file, "--hostname-override", "node", "--healthz-bind-address", health)
	n.cmd.Stderr = &n.log
	if err := n.Node.Start(n.cmd); err != nil {
		t.Fatal(err)
	}
	n.answersFrom(n.Pods[0])
	n.isHealthy()
	return n
}

// write has one pod serve the Service web.
func (n *node) write(serving int) {
	n.t.Helper()
	var out bytes.Buffer
	out.WriteString(services)
	for name, pods := range map[string][]*netlab.Host{"web": n.Pods[serving : serving+1], "sticky": n.Pods} {
		fmt.Fprintf(&out, slice, name)
		for _, p := range pods {
			fmt.Fprintf(&out, "- {addresses: [%s]}\n", p.Address(model.IPv4))
		}
	}
	if err := os.WriteFile(n.file+".new", out.Bytes(), 0o644); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(n.file+".new", n.file); err != nil {
		n.t.Fatal(err)
	}
	n.changes++
}

// set sets the clock of the machine.
func (n *node) set(to time.Time) error {
	now := unix.NsecToTimespec(to.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}

func (n *node) signal(s os.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// answersFrom waits until a pod answers for the Service web.
func (n *node) answersFrom(p *netlab.Host) {
	n.t.Helper()
	n.eventually(func() error {
		if got, err := n.Client.Ask("tcp", web, time.Second); err != nil || got.Name != p.Name {
			return fmt.Errorf("%v, %v instead of an answer of %s", got, err, p.Name)
		}
		return nil
	})
}

func (n *node) isHealthy() {
	n.t.Helper()
	n.eventually(func() error {
		answer, err := n.http.Get("http://" + health + "/healthz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s, %v", answer.Status, body, err)
		}
		return nil
	})
}

// reportsNoFuture checks that nothing has happened "-23h59m50s ago".
func (n *node) reportsNoFuture() {
	n.t.Helper()
	var report bytes.Buffer
	status := exec.Command(os.Getenv("NFTPROXY"), "status")
	status.Stdout, status.Stderr = &report, &report
	if err := errors.Join(n.Node.Start(status), status.Wait()); err != nil {
		n.t.Fatalf("status: %v\n%s", err, &report)
	}
	if !strings.Contains(report.String(), "ago") || strings.Contains(report.String(), " -") {
		n.t.Errorf("status reports\n%s", &report)
	}
}

// isStill checks that the daemon neither changes rules nor logs anything, once
// it has logged all changes: it logs a change after it is in effect, and may be
// interrupted in between.
func (n *node) isStill() {
	n.t.Helper()
	n.eventually(func() error {
		if told := strings.Count(n.log.String(), "rules applied"); told != n.changes {
			return fmt.Errorf("the log has %d changes instead of %d", told, n.changes)
		}
		return nil
	})
	before, lines := n.generation(), strings.Count(n.log.String(), "\n")
	await.Span(still)
	if after := n.generation(); after != before {
		n.t.Errorf("%d transactions without a change", after-before)
	}
	if more := strings.Count(n.log.String(), "\n") - lines; more > 0 {
		n.t.Errorf("%d lines of log without a change", more)
	}
}

func (n *node) generation() uint32 {
	n.t.Helper()
	return n.Node.TestGeneration(n.t)
}

func (n *node) eventually(f func() error) {
	n.t.Helper()
	netlab.Eventually(n.t, patience, f)
}
