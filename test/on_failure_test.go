package test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// healthPort is a port of pods that only health checks connect to, so that a failing endpoint
// goes on with its connections.
const healthPort = 8099

// TestOnFailure: 9.28. Two Services have the same endpoints and the same health check, and
// one closes connections. When an endpoint fails, and when one is removed, the connections
// through all frontends of that one are reset; those through the other go on, and so do those
// to a drained endpoint whose check fails as well, and those through a port that a third Service
// has within a range of the first.
func TestOnFailure(t *testing.T) {
	w := newWard(t, 4)
	const passes, drained, fails, leaves = 0, 1, 2, 3
	health := make([]*netlab.Echo, len(w.Pods))
	for i, p := range w.Pods {
		var err error
		if health[i], err = p.Echo(healthPort); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { health[i].Close() })
	}
	check := fmt.Sprintf("{tcp, port: %d, interval: 500ms, timeout: 200ms, fall: 3, rise: 2}", healthPort)
	closing, keeping := checked(check, w.Pods...), checked(check, w.Pods...)
	keeping.Name, keeping.N = "other", 2
	closing.Annotations["nftproxy.dev/on-failure"] = "close"
	closing.Annotations["nftproxy.dev/ports"] = "9000-9010/tcp"
	inRange := service{Name: "in-range", N: 3, Pods: w.Pods, Port: 9005}
	for _, f := range model.Families {
		inRange.LoadBalancerIPs = append(inRange.LoadBalancerIPs, closing.loadBalancerIP(f).Addr().String())
	}
	w.write(closing, keeping, inRange)
	d := w.start()
	w.answered(closing, w.Pods...)
	w.answered(keeping, w.Pods...)
	ending, others := w.connections(closing), w.connections(keeping)
	others = append(others, w.connectionsTo(inRange, func(f model.Family) netip.AddrPort {
		return netip.AddrPortFrom(closing.loadBalancerIP(f).Addr(), 9005)
	})...)

	closing.Weights = map[*netlab.Host]int{w.Pods[drained]: 0}
	w.write(closing, keeping, inRange)
	w.answered(closing, w.Pods[passes], w.Pods[fails], w.Pods[leaves])
	stop := func(pod int) {
		if err := health[pod].Close(); err != nil {
			t.Fatal(err)
		}
		for _, family := range model.Families {
			eventually(t, func() error {
				for line := range strings.Lines(d.log.String()) {
					if strings.Contains(line, "endpoint fails its health check") && strings.Contains(line, w.Pods[pod].Address(family).String()) {
						return nil
					}
				}
				return fmt.Errorf("no failure of %s is logged", w.Pods[pod].Address(family))
			})
		}
	}
	stop(drained)
	stop(fails)
	w.closed(ending, w.Pods[fails])
	keeping.Pods = w.Pods[:leaves]
	closing.Pods = w.Pods[:leaves]
	w.write(closing, keeping, inRange)
	w.closed(ending, w.Pods[leaves])
	for _, f := range ending {
		if f.peer == w.Pods[passes].Name || f.peer == w.Pods[drained].Name {
			f.goesOn(t, "to an endpoint that passes or is drained")
		}
	}
	for _, f := range others {
		f.goesOn(t, "through another Service")
	}
	d.stop(t)
}

// connections opens TCP connections through every kind of frontend, in both families, until
// each endpoint has one.
func (w *ward) connections(s service) []flow {
	w.t.Helper()
	return w.connectionsTo(s, s.clusterIP, s.loadBalancerIP, s.externalIP, func(f model.Family) netip.AddrPort { return s.nodePort(w.Node, f) })
}

func (w *ward) connectionsTo(s service, frontends ...func(model.Family) netip.AddrPort) (all []flow) {
	w.t.Helper()
	for _, to := range frontends {
		for _, family := range model.Families {
			reached := make(map[string]bool)
			for len(reached) < len(s.Pods) {
				f, err := w.Client.Open("tcp", to(family), patience)
				if err != nil {
					w.t.Fatal(err)
				}
				w.t.Cleanup(func() { f.Close() })
				answer, err := f.Ask()
				if err != nil {
					w.t.Fatal(err)
				}
				reached[answer.Name] = true
				all = append(all, flow{f, "tcp", family, answer.Name})
			}
		}
	}
	return all
}

// closed waits until the connections to a pod are reset.
func (w *ward) closed(flows []flow, pod *netlab.Host) {
	w.t.Helper()
	for _, f := range flows {
		if f.peer == pod.Name {
			eventually(w.t, func() error {
				if got, err := f.Ask(); !errors.Is(err, syscall.ECONNRESET) {
					return fmt.Errorf("%s to %s: %v, %v, want a reset", f.family, pod.Name, got, err)
				}
				return nil
			})
		}
	}
}
