package test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// dial opens connections to a Service over both families, one after the other, until stop is
// called. It has no expectations about answers.
func (w *ward) dial(s service) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, family := range model.Families {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = w.Client.Ask("tcp", s.clusterIP(family), silence)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// tracks reports whether the kernel adds connections to the packets that rules log.
func (w *ward) tracks() (tracks bool) {
	w.t.Helper()
	err := w.Node.Do(func() (err error) {
		tracks, err = nflog.Tracks()
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return tracks
}

// TestFailuresAreNamed: 16.7, 17.11 to 17.13. Without a health check, status names endpoints that
// refuse connections or do not answer, until they answer again.
func TestFailuresAreNamed(t *testing.T) {
	w := newWard(t, 2)
	w.flags = slices.Concat(clusterCIDR, []string{"--observe=failures", "--observe-group=9"})
	web := service{Name: "web", N: 1, Pods: w.Pods}
	w.write(web)
	w.start()
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	w.answered(web, w.Pods...)
	stop := w.dial(web)
	defer func() { stop() }()
	w.page("/metrics", "\nnftproxy_sampled_connections_total{namespace=\"default\",outcome=\"answered\",service=\"web\"} ")
	w.has([]string{"status"}, "healthy\n")

	w.kill(w.Pods...)
	w.has([]string{"status"}, "ConnectionsRefused: connections are refused: see whether a program listens on the port of the endpoints",
		"Service default/web: only one client fails: 4 endpoints, "+w.Pods[0].IPv4.String()+":8080 and others, refused ", " sampled connections in the last minute")
	w.has([]string{"describe", "web"}, "FAILED SAMPLES", " refused") // 17.15
	w.revive(w.Pods...)
	w.has([]string{"status"}, "healthy\n")

	w.silence(w.Pods[1])
	w.has([]string{"status"}, "ConnectionsUnanswered: connections are not answered: ",
		"Service default/web: only one client fails: 2 endpoints, "+w.Pods[1].IPv4.String()+":8080 and others, did not answer ")
	for _, outcome := range []string{"refused", "unanswered"} {
		w.page("/metrics", "\nnftproxy_sampled_connections_total{namespace=\"default\",outcome=\""+outcome+"\",service=\"web\"} ")
	}
}

// TestPassiveCheck: 3.66, 3.67. A server that stops listening is left out by what its clients met,
// and gets connections again after a time.
func TestPassiveCheck(t *testing.T) {
	w := newWard(t, 2)
	web := service{Name: "web", N: 1, Pods: w.Pods, Annotations: map[string]string{"nftproxy.dev/health-check": "{passive: 2 of 3, interval: 1h}"}}
	w.write(web)
	d := w.start()
	w.page("/metrics", "\n")
	w.has([]string{"status"}, "NotObserved: ", "Service default/web: its passive health check learns nothing: start nftproxy with --observe=failures")
	d.stop(t)
	w.flags = slices.Concat(clusterCIDR, []string{"--observe=failures", "--observe-group=9"})
	w.start()
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	w.answered(web, w.Pods...)
	w.fails(web, w.Pods[0], ": passive: 2 of the last 3 sampled connections failed, the last one was refused; from this machine: connect: refused, for ")
	w.answered(web, w.Pods[1])

	w.revive(w.Pods[0])
	web.Annotations["nftproxy.dev/health-check"] = "{passive: 2 of 3, interval: 1s}" // another check
	w.write(web)
	w.answered(web, w.Pods...)
	w.fails(web, w.Pods[0], ": passive: ", " refused, for ")
	w.revive(w.Pods[0])
	// Each trial that has failed has doubled the time until the next one.
	netlab.Eventually(t, 4*patience, func() error {
		out := w.mustRun(0, exec.Command(binary, "status"))
		if !strings.HasPrefix(out, "healthy\n") {
			return errors.New(out)
		}
		return nil
	})
	w.answered(web, w.Pods...)
}

// fails stops a server, and has clients dial the Service until the status says that a check fails.
func (w *ward) fails(s service, pod *netlab.Host, texts ...string) {
	w.t.Helper()
	w.kill(pod)
	stop := w.dial(s)
	defer stop()
	w.has([]string{"status"}, append(texts, "CheckFailing: ")...)
}

// TestSampledFrontends: 16.7, 17.11. Connections that pass are sampled, and none of them counts as lost: over all kinds of
// addresses, with session affinity, to ranges of ports, to a frontend that is its own endpoint, and from the node.
func TestSampledFrontends(t *testing.T) {
	for _, level := range []string{"failures", "connections"} {
		t.Run(level, func(t *testing.T) { sampleFrontends(t, level) })
	}
}

func sampleFrontends(t *testing.T, level string) {
	w := newWard(t, 3)
	w.flags = slices.Concat(clusterCIDR, []string{"--observe=" + level, "--observe-group=9"})
	plain := service{Name: "plain", N: 1, Pods: w.Pods[:2]}
	sticky := service{Name: "sticky", N: 2, Pods: w.Pods[:2], Affinity: 100}
	ranged := service{Name: "ranged", N: 3, Pods: w.Pods[:2], Annotations: map[string]string{"nftproxy.dev/ports": "8070-8090/tcp"}}
	itself := service{Name: "itself", N: 4, Pods: w.Pods[2:], Port: echoPort, ExternalIPs: []string{w.Pods[2].IPv4.String(), w.Pods[2].IPv6.String()}}
	w.write(plain, sticky, ranged, itself)
	w.start()
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	w.inSync()
	const dials = 4
	for _, f := range model.Families {
		for range dials {
			for _, s := range []service{plain, sticky} {
				for _, to := range s.frontends(w.Node, f) {
					ask(t, w.Client, "tcp", to)
				}
				ask(t, w.Node, "tcp", s.clusterIP(f))
			}
			ask(t, w.Client, "tcp", ranged.ranged(f, echoPort)["ClusterIP"])
			ask(t, w.Client, "tcp", netip.AddrPortFrom(w.Pods[2].Address(f), echoPort))
		}
	}
	for _, s := range []string{"plain", "sticky", "ranged", "itself"} {
		eventually(t, func() error {
			answered, lost := w.sampled(s, "answered"), w.sampled(s, "dropped")+w.sampled(s, "refused")+w.sampled(s, "unanswered")
			if lost > 0 {
				t.Errorf("%s: %d connections that were answered count as failed", s, lost)
			}
			if answered < 2*dials {
				return fmt.Errorf("%s: %d samples", s, answered)
			}
			return nil
		})
	}
}

// sampled returns the number of samples of a Service with an outcome.
func (w *ward) sampled(name, outcome string) (n int) {
	w.t.Helper()
	a, err := get(w.Node, "GET", metricsAddress, "/metrics", "")
	if err != nil {
		w.t.Fatal(err)
	}
	_, after, _ := strings.Cut(a.body, fmt.Sprintf("\nnftproxy_sampled_connections_total{namespace=\"default\",outcome=%q,service=%q} ", outcome, name))
	_, _ = fmt.Sscan(after, &n) // none yet
	return n
}
