package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// The frontends of the Services.
var (
	plain    = netip.MustParseAddrPort("203.0.113.10:80")
	sticky   = netip.MustParseAddrPort("203.0.113.11:80")
	changing = netip.MustParseAddrPort("203.0.113.12:80")
)

// others is how many more Services there are.
const others = 300

// write writes the objects. The endpoints of the changing Service begin with a pod.
func (n *node) write(shift int) error {
	var b strings.Builder
	service := func(name, address, affinity string, pods []*netlab.Host) {
		fmt.Fprintf(&b, `{apiVersion: v1, kind: Service, metadata: {name: %[1]s}, spec: {type: LoadBalancer, clusterIP: 10.96.%[2]s, sessionAffinity: %[3]s,
  ports: [{name: tcp, port: 80}, {name: udp, port: 80, protocol: UDP}]}, status: {loadBalancer: {ingress: [{ip: 203.0.113.%[4]s}]}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: tcp, port: %[5]d}, {name: udp, port: %[5]d, protocol: UDP}]
endpoints:
`, name, address, affinity, address[strings.LastIndex(address, ".")+1:], port)
		for _, pod := range pods {
			fmt.Fprintf(&b, "- {addresses: [%s]}\n", pod.IPv4)
		}
		b.WriteString("---\n")
	}
	service("plain", "0.10", "None", n.lab.Pods[:3])
	service("sticky", "0.11", "ClientIP", n.lab.Pods[:3])
	service("changing", "0.12", "None", append(n.lab.Pods[:2:2], n.lab.Pods[2+shift]))
	for i := range others {
		fmt.Fprintf(&b, `{apiVersion: v1, kind: Service, metadata: {name: s%[1]d}, spec: {clusterIP: 10.96.%[2]d.%[3]d, ports: [{port: 80}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s%[1]d-1, labels: {kubernetes.io/service-name: s%[1]d}},
 addressType: IPv4, ports: [{port: %[4]d}], endpoints: [{addresses: [%[5]s]}, {addresses: [%[6]s]}]}
---
`, i, 1+i/250, 1+i%250, port, n.lab.Pods[i%4].IPv4, n.lab.Pods[(i+1)%4].IPv4)
	}
	next := n.file + ".next"
	if err := os.WriteFile(next, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, n.file)
}

// kinds are ways to make requests.
const (
	tcp = iota
	udp
	kept
	affinity
	kinds
)

// load is a client for each kind.
type load struct {
	workers sync.WaitGroup

	mu     sync.Mutex // of what follows
	moved  *sync.Cond
	count  [kinds]int // since the last row
	failed error      // the first one
	ended  bool
}

func startLoad(lab *netlab.Lab) *load {
	l := &load{}
	l.moved = sync.NewCond(&l.mu)
	client := lab.Client
	first := ""
	var open *netlab.Flow
	for kind, ask := range [kinds]func() error{
		tcp: func() error { _, err := client.Ask("tcp", plain, 0); return err },
		udp: func() error { _, err := client.Ask("udp", plain, 0); return err },
		kept: func() (err error) {
			if open == nil {
				if open, err = client.Open("tcp", plain, 0); err != nil {
					return err
				}
			}
			_, err = open.Ask()
			return err
		},
		affinity: func() error {
			a, err := client.Ask("tcp", sticky, 0)
			if first == "" {
				first = a.Name
			}
			if err == nil && a.Name != first {
				err = fmt.Errorf("the client of %s reaches %s", first, a.Name)
			}
			return err
		},
	} {
		l.workers.Go(func() {
			rate := time.NewTicker(pace)
			defer rate.Stop()
			for l.step(kind, ask()) {
				<-rate.C
			}
		})
	}
	return l
}

// pace limits the requests: each needs another source port.
const pace = time.Millisecond

// step counts a request, and reports whether there should be another one.
func (l *load) step(kind int, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[kind]++
	if err != nil && l.failed == nil {
		l.failed = err
	}
	l.moved.Broadcast()
	return !l.ended && l.failed == nil
}

// row waits for enough requests of each kind, and prints them.
func (l *load) row(w io.Writer, state string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count = [kinds]int{}
	for min(l.count[tcp], l.count[udp], l.count[kept], l.count[affinity]) < enough && l.failed == nil {
		l.moved.Wait()
	}
	if l.failed != nil {
		return fmt.Errorf("%s: %w", state, l.failed)
	}
	_, err := fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t0\n", state, l.count[tcp], l.count[udp], l.count[kept], l.count[affinity])
	return err
}

func (l *load) stop() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.workers.Wait()
}
