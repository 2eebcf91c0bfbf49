package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// refusal is a reason for which first packets of a protocol are refused.
type refusal struct {
	reason   model.RefusalReason
	protocol model.Protocol
	family   model.Family
}

// refusedAt is where clients are refused for a reason.
type refusedAt struct {
	service string // that has the address; empty: none
	to      func(model.Family) netip.AddrPort
}

// TestRefusalsOfEveryReason: 16.2, 16.3, 17.1. Each reason but one, over both families and all protocols: the counter, the
// event with the address and the Service, the line in the log, and the words. No kernel needs
// sockets of SCTP for a first packet.
//
// Each round sends a packet for all that has no event yet, so that the second one exceeds limits.
func TestRefusalsOfEveryReason(t *testing.T) {
	w := newWard(t, 1)
	if err := w.AddRemotePods(1); err != nil {
		t.Fatal(err)
	}
	w.flags = slices.Concat(allAddresses, []string{"--observe=refusals", "--observe-group=9", "--answer-ping"})
	s := w.refusable()
	limits := []service{
		limited("rate", 11, w.Pods, map[string]string{"connection-rate": "1/hour burst 1"}),
		limited("client-rate", 12, w.Pods, map[string]string{"connection-rate-per-client": "1/hour burst 1"}),
		limited("connections", 13, w.Pods, map[string]string{"max-connections": "1"}),
		limited("client-connections", 14, w.Pods, map[string]string{"max-connections-per-client": "1"}),
	}
	port := func(of func(model.Family) netip.AddrPort, port uint16) func(model.Family) netip.AddrPort {
		return func(f model.Family) netip.AddrPort { return netip.AddrPortFrom(of(f).Addr(), port) }
	}
	wildcard := func(f model.Family) netip.AddrPort { return netip.AddrPortFrom(model.Wildcard(f), 0) }
	rows := map[model.RefusalReason]refusedAt{
		model.NoEndpoints:           {"empty", s.empty.clusterIP},
		model.NoLocalEndpoints:      {"local", s.local.externalIP},
		model.UnknownPort:           {"web", port(s.web.clusterIP, servicePort+1)},
		model.UnusedAddress:         {"", service{N: 99}.clusterIP},
		model.SourceRanges:          {"ranged", s.ranged.loadBalancerIP},
		model.NotAllowed:            {"closed", s.closed.externalIP},
		model.Denied:                {"denied", s.denied.clusterIP},
		model.OverRate:              {"rate", limits[0].clusterIP},
		model.OverClientRate:        {"client-rate", limits[1].clusterIP},
		model.OverConnections:       {"connections", limits[2].clusterIP},
		model.OverClientConnections: {"client-connections", limits[3].clusterIP},
		model.InvalidDestination:    {"web", port(wildcard, s.web.NodePort())},
		model.PingRefused:           {"denied", port(s.denied.clusterIP, 0)},
	}
	wanted := make(map[refusal]bool)
	for r := range model.Refusals {
		r := model.RefusalReason(r)
		switch protocols := model.Protocols[:]; {
		case r == model.AffinityReleased: // TestRefusalOfReleasedClient
		case rows[r].to == nil:
			t.Errorf("no row for %s", r)
		default:
			for _, f := range model.Families {
				if r == model.PingRefused {
					protocols = []model.Protocol{model.EchoProtocol(f)}
				}
				for _, p := range protocols {
					wanted[refusal{r, p, f}] = true
				}
			}
		}
	}
	w.silence(w.Pods...) // connections that are not refused stay open
	w.write(append(s.all(), limits...)...)
	d := w.start(func(c *exec.Cmd) { c.Args = append(c.Args, "--log-connections=refused") })
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	w.inSync()
	missing := maps.Clone(wanted)
	source := uint16(20000)
	eventually(t, func() error {
		source++
		for m := range missing {
			w.sendFrame(firstPacket(m.protocol, netip.AddrPortFrom(w.Client.Address(m.family), source), rows[m.reason].to(m.family)))
		}
		var o api.Observed
		if err := json.Unmarshal([]byte(w.mustRun(0, exec.Command(binary, "observe", "-o", "json", "--last=1000"))), &o); err != nil {
			return err
		}
		for _, e := range o.Events {
			r, _ := model.ReasonOf(e.Reason)
			for m := range missing {
				if r == m.reason && e.Protocol == m.protocol.String() && e.Frontend == model.EndpointText(rows[r].to(m.family)) && e.Service == rows[r].service {
					delete(missing, m)
				}
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("no events of %v, among %+v", missing, o.Events)
		}
		return nil
	})
	text := w.mustRun(0, exec.Command(binary, "observe", "--last=1000"))
	for m := range wanted {
		w.isTold(t, m, rows[m.reason].to(m.family), d.log.String(), text)
	}
}

// isTold checks what is counted, logged and printed for a refused packet to an address and port.
func (w *ward) isTold(t *testing.T, m refusal, to netip.AddrPort, log, text string) {
	t.Helper()
	words := model.Refusals[m.reason]
	if counter := counterFor(m.reason, m.protocol, to); w.countOf(t, m.reason, counter) == 0 {
		t.Errorf("%s: nothing is counted for %+v", words.Name, counter)
	}
	if line := fmt.Sprintf("reason=%s protocol=%s client=", words.Name, m.protocol.String()); !strings.Contains(log, line) {
		t.Errorf("the log has no %q", line)
	}
	for _, part := range []string{words.Ends() + ", " + words.Name + ": " + words.Text, words.Advice} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}
