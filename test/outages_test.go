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
	filter  string                                     // of the node, in the table inet outage, while clients dial
	// What is printed.
	status, describe, observe string
	object                    string // what status says about the Service
}

// failingSamples is how many failed samples of one endpoint are enough: for two endpoints of a
// Service, one of them has as many when the Service has this number.
const failingSamples = 2*3 - 1

// TestFailuresInEachOutage: 16.7, 17.1, 17.11 to 17.13, 17.15. With --observe=failures and more, status, describe and observe
// name why clients get no connection, as soon as there are enough samples: not later than the first question.
func TestFailuresInEachOutage(t *testing.T) {
	for _, level := range []string{"failures", "connections"} {
		t.Run(level, func(t *testing.T) { failInEachOutage(t, level) })
	}
}

func failInEachOutage(t *testing.T, level string) {
	w := newWard(t, 5)
	w.flags = slices.Concat(clusterCIDR, []string{"--observe=" + level, "--observe-group=9"})
	const refused, silent = "ConnectionsRefused: connections are refused: see whether a program listens on the port of the endpoints, and on which addresses; where only one client fails, look at it first",
		"ConnectionsUnanswered: connections are not answered: see whether the endpoints run, whether a filter drops the packets, and whether their answers return through this node; where only one client fails, look at it first"
	const dropped, lost = "ConnectionsDropped: connections are lost on this machine, behind their translation: a filter drops them, or no route leads to the endpoint; \"nftproxy trace\" names the rule",
		" sampled connections in the last minute were lost on this machine (port \"tcp\"): nftproxy trace default/"
	const totals = `failed: "nftproxy status" and "nftproxy describe" name the endpoints`
	filtered := func(name, rules, may string) outage {
		return outage{name: name, sampled: "dropped", filter: rules, status: dropped, describe: lost, observe: totals, object: may}
	}
	forward := func(policy, rules string) string {
		return "chain forward { type filter hook forward priority 0; policy " + policy + "; " + rules + "; }"
	}
	all := []outage{
		{name: "another port", service: service{Pods: w.Pods[:1], Target: 8081}, sampled: "refused", status: refused, describe: " refused", observe: totals},
		{name: "no route back", service: service{Pods: w.Pods[1:2], External: "Local"}, to: service.externalIP, sampled: "unanswered", status: silent, describe: " unanswered", observe: totals},
		{name: "filter", service: service{Pods: w.Pods[2:3]}, sampled: "unanswered", status: silent, describe: " unanswered", observe: totals},
		{name: "pod gone", service: service{Pods: w.Pods[3:4]}, sampled: "unanswered", status: silent, describe: " unanswered", observe: totals},
		{name: "denied", service: service{Pods: w.Pods[:1], Annotations: listed(nil, addressesOf(w.Client))}, status: " denied\n",
			describe: "denied: the client is among the denied clients of the Service; remove its address from nftproxy.dev/denied-sources\n",
			observe:  "dropped, denied: the client is among the denied clients of the Service\n"},
		{name: "no endpoint", status: "NoEndpoints: connections are rejected, because no endpoint can take them", describe: " no-endpoints\n",
			observe: "rejected, no-endpoints: no endpoint of the Service can take connections\n"},

		filtered("policy of forward", forward("drop", "ct state established,related accept"), "; the policy of chain inet outage forward may drop them: nftproxy trace "),
		filtered("rule of forward", forward("accept", "ct state invalid drop; tcp dport 8080 drop"), "; rule 2 of chain inet outage forward may drop them: nftproxy trace "),
		filtered("rejection in forward", "chain fw { tcp dport 8080 reject with icmpx admin-prohibited; }; "+forward("accept", "jump fw"), "; rule 1 of chain inet outage fw may drop them: nftproxy trace "),
		filtered("policy of one family", forward("drop", "meta nfproto ipv6 accept"), " over IPv4 were lost on this machine (port \"tcp\"); the policy of chain inet outage forward may drop them: "),
		filtered("in postrouting", "chain post { type filter hook postrouting priority -300; tcp dport 8080 drop; }", " were lost on this machine (port \"tcp\"): nftproxy trace "),
	}
	var services []service
	for i := range all {
		s := &all[i]
		if s.N = i + 1; s.filter != "" {
			s.Pods = w.Pods[4:]
		}
		s.Name = strings.ReplaceAll(s.name, " ", "-")
		services = append(services, s.service)
	}
	w.kill(w.Pods[0])
	if err := errors.Join(w.Pods[1].RemoveDefaultRoutes(), w.Pods[3].Leave()); err != nil {
		t.Fatal(err)
	}
	w.silence(w.Pods[2])
	w.write(services...)
	w.start()
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	w.inSync()
	for i := range all {
		t.Run(all[i].name, func(t *testing.T) {
			s := &all[i]
			if s.filter == "" {
				w.named(t, s)
				return
			}
			w.nftLoad("table inet outage { " + s.filter + "; }")
			w.named(t, s)
			w.nftLoad("delete table inet outage")
			w.answered(s.service, s.Pods...)
		})
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
	object := "Service default/" + s.Name + ": "
	netlab.Eventually(t, patience, func() error {
		enough := 0
		if s.sampled != "" {
			enough = w.sampled(s.Name, s.sampled)
		}
		out := w.mustRun(0, exec.Command(binary, "status", s.Name))
		if strings.Contains(out, s.status) && (s.sampled == "" || strings.Contains(out, object) && strings.Contains(out, s.object)) {
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
