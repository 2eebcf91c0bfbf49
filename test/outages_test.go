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
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// outage is why clients of a Service get no connection, and what names it.
type outage struct {
	name string
	service
	to      func(service, model.Family) netip.AddrPort // nil: the ClusterIP
	sampled string                                     // outcome of samples; empty: rules refuse the connections
	// What is printed.
	status, describe, observe string
}

// failingSamples is how many failed samples of one endpoint are enough: for two endpoints of a
// Service, one of them has as many when the Service has this number.
const failingSamples = 2*3 - 1

// TestFailuresInEachOutage: 16.7, 17.1, 17.11, 17.12. With --observe=failures, status, describe and observe name why
// clients get no connection, as soon as there are enough samples: not later than the first question.
func TestFailuresInEachOutage(t *testing.T) {
	w := newWard(t, 4)
	w.flags = slices.Concat(clusterCIDR, []string{"--observe=failures", "--observe-group=9"})
	const refused, silent = "ConnectionsRefused: endpoints refuse connections: see whether a program listens on their port, and on which addresses",
		"ConnectionsUnanswered: endpoints do not answer: see whether they run, whether a filter drops the packets, and whether their answers return through this node"
	const totals = `failed: "nftproxy status" and "nftproxy describe" name the endpoints`
	all := []outage{
		{"another port", service{Name: "port", N: 1, Pods: w.Pods[:1], Target: 8081}, nil, "refused", refused, " refused", totals},
		{"no route back", service{Name: "route", N: 2, Pods: w.Pods[1:2], External: "Local"}, service.externalIP, "unanswered", silent, " unanswered", totals},
		{"filter", service{Name: "filter", N: 3, Pods: w.Pods[2:3]}, nil, "unanswered", silent, " unanswered", totals},
		{"pod gone", service{Name: "gone", N: 4, Pods: w.Pods[3:]}, nil, "unanswered", silent, " unanswered", totals},
		{"denied", service{Name: "denied", N: 5, Pods: w.Pods[:1], Annotations: listed(nil, addressesOf(w.Client))}, nil, "", " denied\n",
			"denied: the client is among the denied clients of the Service; remove its address from nftproxy.dev/denied-sources\n",
			"dropped, denied: the client is among the denied clients of the Service\n"},
		{"no endpoint", service{Name: "empty", N: 6}, nil, "", "NoEndpoints: connections are rejected, because no endpoint can take them", " no-endpoints\n",
			"rejected, no-endpoints: no endpoint of the Service can take connections\n"},
	}
	w.kill(w.Pods[0])
	if err := errors.Join(w.Pods[1].RemoveDefaultRoutes(), w.Pods[3].Leave()); err != nil {
		t.Fatal(err)
	}
	w.silence(w.Pods[2]) // a filter of this node would drop before samples are taken
	var services []service
	for _, s := range all {
		services = append(services, s.service)
	}
	w.write(services...)
	tracks := w.tracks()
	w.start()
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	w.inSync()
	for i := range all {
		if s := &all[i]; s.sampled == "" || tracks { // 17.13
			t.Run(s.name, func(t *testing.T) { w.named(t, s) })
		}
	}
}

// named has clients dial until the situation is named.
func (w *ward) named(t *testing.T, s *outage) {
	to := s.to
	if to == nil {
		to = service.clusterIP
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	var began atomic.Pointer[time.Time] // of the connection that is the last one needed
	if s.sampled == "" {
		now := time.Now()
		began.Store(&now)
	}
	for _, f := range model.Families {
		clients.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				if at := time.Now(); n == 3 {
					began.CompareAndSwap(nil, &at)
				}
				_, _ = w.Client.Ask("tcp", to(s.service, f), silence)
			}
		})
	}
	object := "Service default/" + s.Name
	samples := fmt.Sprintf("\nnftproxy_sampled_connections_total{namespace=\"default\",outcome=%q,service=%q} ", s.sampled, s.Name)
	netlab.Eventually(t, patience, func() error {
		enough := 0
		if s.sampled != "" {
			a, err := get(w.Node, "GET", metricsAddress, "/metrics", "")
			if err != nil {
				return err
			}
			_, after, _ := strings.Cut(a.body, samples)
			_, _ = fmt.Sscan(after, &enough) // none yet
		}
		out := w.mustRun(0, exec.Command(binary, "status", s.Name))
		if strings.Contains(out, s.status) && (s.sampled == "" || strings.Contains(out, object)) {
			fmt.Fprintf(t.Output(), "%s: named %s after the connection that was needed\n", s.name, time.Since(*began.Load()).Round(time.Millisecond))
			return nil
		}
		err := fmt.Errorf("%d failed samples, and status does not name it:\n%s", enough, out)
		if enough >= failingSamples {
			t.Error(err)
			return nil
		}
		return err
	})
	w.has([]string{"describe", s.Name}, s.describe)
	w.has([]string{"observe", s.Name}, s.observe)
}
