package test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// observedConnection is a connection that an event must be about.
type observedConnection struct {
	client, frontend, endpoint netip.AddrPort
	network, service, reason   string
}

// watched is a cluster whose daemon observes connections. A server ends connections or resets
// them, one does not run, and one is silent.
type watched struct {
	*ward
	web, ending, dead, mute service

	made []observedConnection
}

func newWatched(t *testing.T, annotations map[string]string, flags ...string) *watched {
	t.Helper()
	w := &watched{ward: newWard(t, 4)}
	w.flags = slices.Concat(clusterCIDR, []string{"--observe-group=9", "--metrics-bind-address=0.0.0.0"}, flags)
	for i, s := range []*service{&w.web, &w.ending, &w.dead, &w.mute} {
		*s = service{Name: []string{"web", "ending", "dead", "mute"}[i], N: i + 1, Pods: w.Pods[i : i+1], Annotations: annotations}
	}
	w.kill(w.Pods[1:3]...)
	w.endOnPod(w.Pods[1])
	w.silence(w.Pods[3])
	w.write(w.web, w.ending, w.dead, w.mute)
	w.start()
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	w.set("net.netfilter.nf_conntrack_acct", "1") // there since the rules have loaded the module
	w.answered(w.web, w.Pods[0])
	return w
}

// endOnPod starts a server that answers the line "close" or "reset" by doing so.
func (w *watched) endOnPod(pod *netlab.Host) {
	w.t.Helper()
	for _, f := range model.Families {
		var l net.Listener
		eventually(w.t, func() (err error) { // a server that waits for a client leaves the port a moment after Close
			l, err = pod.Listen("tcp", netip.AddrPortFrom(pod.Address(f), echoPort).String())
			return err
		})
		w.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					line, _ := bufio.NewReader(c).ReadString('\n')
					if line == "reset\n" {
						_ = c.(*net.TCPConn).SetLinger(0)
					}
					_ = c.Close()
				}()
			}
		}()
	}
}

// dials opens a connection that goes on as the reason says, and notes it.
func (w *watched) dials(from *netlab.Host, s service, reason string, network string, to netip.AddrPort) error {
	client := netip.AddrPortFrom(from.Address(model.FamilyOf(to.Addr())), uint16(10000+len(w.made)))
	w.note(s, reason, network, client, to)
	dialer := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(client)}
	if network == "udp" {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(client)
	} else if reason == model.Unanswered {
		dialer.Timeout = silence
	}
	var c net.Conn
	err := from.Do(func() (err error) { c, err = dialer.Dial(network, to.String()); return err })
	if network == "tcp" && (reason == model.Unanswered || reason == model.EndpointRefused) {
		if err == nil {
			return errors.Join(errors.New("a server answers that does not run, or is silent"), c.Close())
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return converse(c, reason)
}

// converse has the server of a connection, or the client, end it as the reason says.
func converse(c net.Conn, reason string) error {
	line := map[string]string{model.ServerClosed: "close\n", model.ServerReset: "reset\n"}[reason]
	if _, err := io.WriteString(c, cmp.Or(line, "?\n")); err != nil || reason == model.Unanswered {
		return err
	}
	_, err := bufio.NewReader(c).ReadString('\n')
	switch {
	case line != "" && err == nil:
		return errors.New("the server has not ended the connection")
	case line != "":
		return nil
	case reason == model.ClientReset:
		return errors.Join(err, c.(*net.TCPConn).SetLinger(0))
	}
	return err
}

func (w *watched) note(s service, reason, network string, client, to netip.AddrPort) {
	endpoint := netip.AddrPortFrom(s.Pods[0].Address(model.FamilyOf(to.Addr())), echoPort)
	w.made = append(w.made, observedConnection{client, to, endpoint, network, s.Name, reason})
}

// observed returns the events of the daemon.
func (w *watched) observed(query string) (o api.Observed) {
	w.t.Helper()
	a, err := get(w.Node, "GET", metricsAddress, "/observe?limit=1000&"+query, "")
	if err == nil {
		err = json.Unmarshal([]byte(a.body), &o)
	}
	if err != nil {
		w.t.Fatalf("%v in %s", err, a.body)
	}
	return o
}

// find returns the events about a connection.
func find(all []api.Observation, c *observedConnection) (out []api.Observation) {
	for _, e := range all {
		if e.Client == c.client.String() && e.Frontend == c.frontend.String() && e.Protocol == c.network {
			out = append(out, e)
		}
	}
	return out
}

// tells waits until each connection has an event as it was.
func (w *watched) tells() {
	w.t.Helper()
	eventually(w.t, func() error {
		o := w.observed("")
		for i := range w.made {
			c := &w.made[i]
			events := find(o.Events, c)
			if len(events) == 0 {
				return fmt.Errorf("no event about %+v among %d", *c, len(o.Events))
			}
			e := events[len(events)-1]
			if e.Reason != c.reason || e.Endpoint != c.endpoint.String() || e.Service != c.service {
				return fmt.Errorf("%+v, want %+v", e, *c)
			}
			if e.Outcome == model.Served.String() && (e.Sent == nil || *e.Sent == 0 || *e.Received == 0) {
				return fmt.Errorf("no bytes in %+v", e)
			}
		}
		return nil
	})
}

// makes opens connections of all courses from a host.
func (w *watched) makes(from *netlab.Host, frontend func(service, model.Family) netip.AddrPort) {
	w.t.Helper()
	for _, f := range model.Families {
		for _, c := range []struct {
			service
			reason, network string
		}{
			{w.web, model.ClientClosed, "tcp"}, {w.web, model.ClientReset, "tcp"}, {w.ending, model.ServerClosed, "tcp"}, {w.ending, model.ServerReset, "tcp"},
			{w.dead, model.EndpointRefused, "tcp"}, {w.mute, model.Unanswered, "tcp"},
			{w.web, model.AnsweredOpen, "udp"}, {w.mute, model.Unanswered, "udp"},
		} {
			to := frontend(c.service, f)
			if err := w.dials(from, c.service, c.reason, c.network, to); err != nil {
				w.t.Fatalf("%s %s %s from %s: %v", c.reason, c.network, to, from.Name, err)
			}
		}
	}
}

// TestConnections: 16.8, 17.9, 17.16 to 17.18. Each connection to an endpoint has an event with its client,
// the frontend that it dialled, its endpoint and its outcome: over both families and protocols,
// all kinds of frontends, and from clients outside, on the node and in pods.
func TestConnections(t *testing.T) {
	w := newWatched(t, nil, "--observe=connections", "--log-connections=failed")
	for _, frontend := range []func(service, model.Family) netip.AddrPort{
		service.clusterIP, service.externalIP, service.loadBalancerIP,
		func(s service, f model.Family) netip.AddrPort { return s.nodePort(w.Node, f) },
	} {
		w.makes(w.Client, frontend)
	}
	w.makes(w.Node, service.clusterIP)
	w.makes(w.Pods[0], service.clusterIP)
	w.tells()
	for _, e := range w.observed("outcome=unanswered&outcome=endpoint-refused").Events {
		if e.Service != w.dead.Name && e.Service != w.mute.Name {
			t.Errorf("a connection that was served has failed: %+v", e)
		}
	}
	out := w.mustRun(0, exec.Command(binary, "observe", "default/ending", "--last=1000"))
	if !strings.Contains(out, "server-reset: the endpoint has reset the connection; ") || strings.Contains(out, "default/web") {
		t.Errorf("observe:\n%s", out)
	}
	if out := w.mustRun(0, exec.Command(binary, "observe", "--failed", "--last=1000")); strings.Contains(out, "closed:") || !strings.Contains(out, "unanswered: the endpoint has not answered within 2 seconds\n") {
		t.Errorf("observe --failed:\n%s", out)
	}
}

// TestEndsAreLogged: 16.8. Of a connection, the segment with which the endpoint ends it is logged, and one that resets
// it, but not the one with which the client ends it.
func TestEndsAreLogged(t *testing.T) {
	c := newCluster(t, 1)
	c.flags = slices.Concat(clusterCIDR, []string{"--observe=connections", "--observe-group=7"})
	web := service{Name: "web", N: 1, Pods: c.Pods}
	log := c.listen(7)
	c.apply(web)
	for _, from := range []*netlab.Host{c.Client, c.Node} {
		for _, f := range model.Families {
			for _, resets := range []bool{false, true} {
				var client net.Conn
				eventually(t, func() (err error) {
					client, err = from.DialContext(t.Context(), "tcp", web.clusterIP(f).String())
					return err
				})
				at, endpoint := client.LocalAddr().(*net.TCPAddr).AddrPort(), endpointOf(c.Pods[0], f)
				if resets {
					if err := client.(*net.TCPConn).SetLinger(0); err != nil {
						t.Fatal(err)
					}
				}
				if err := client.Close(); err != nil {
					t.Fatal(err)
				}
				source, to := endpoint.Addr(), at
				if resets {
					source, to = at.Addr(), endpoint
				}
				eventually(t, func() error {
					if !log.ends(source, to) {
						return fmt.Errorf("the segment from %s to %s is not logged", source, to)
					}
					return nil
				})
				if !resets && log.ends(at.Addr(), endpoint) { // it came before
					t.Errorf("from %s over %s: the segment with which the client has ended the connection is logged", from.Name, f)
				}
			}
		}
	}
}

// TestConnectionsOfService: 16.8, 17.17. With an annotation, the connections of one Service are
// observed, those of others are not; without it, there is no rule for them. A long connection
// has an event while it is open, and another one at its end.
func TestConnectionsOfService(t *testing.T) {
	w := newWatched(t, nil, "--observe=refusals")
	hasRules := func() bool { return strings.Contains(w.nft("list", "chains"), "chain watch") }
	if hasRules() {
		t.Error("there are rules although no Service is observed")
	}
	w.web.Annotations = map[string]string{"nftproxy.dev/observe": "connections", "nftproxy.dev/ports": "9000-9010/tcp"}
	w.write(w.web, w.ending, w.dead, w.mute)
	// The elements come in the transaction after the one with the rules.
	observes := regexp.MustCompile(`set observed \{[^{}]*elements = `)
	eventually(t, func() error {
		if n := len(observes.FindAllString(w.nft("list", "ruleset"), -1)); !hasRules() || n != len(model.Families) {
			return fmt.Errorf("rules: %t, with frontends in %d sets", hasRules(), n)
		}
		return nil
	})
	w.inSync() // the chains come before what leads to them
	open, err := w.Client.Open("tcp", w.web.clusterIP(model.IPv4), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	w.has([]string{"observe", "default/web"}, "answered: the endpoint has answered, and the connection goes on; 2")
	if err := w.dials(w.Client, w.ending, model.ServerClosed, "tcp", w.ending.clusterIP(model.IPv4)); err != nil {
		t.Fatal(err)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	w.has([]string{"observe", "default/web"}, "client-closed: the client has ended the connection; ")
	if o := w.observed("service=default/web&outcome=unanswered"); len(o.Events) > 0 { // the range has its address, too
		t.Errorf("one connection is observed twice: %+v", o.Events)
	}
	if o := w.observed("service=default/ending"); len(o.Events) > 0 {
		t.Errorf("a Service without the annotation: %+v", o.Events)
	}
	w.has([]string{"describe", "web"}, "observe           connections\n")
	w.web.Annotations = nil
	w.write(w.web, w.ending, w.dead, w.mute)
	eventually(t, func() error {
		if hasRules() {
			return errors.New("rules are left")
		}
		return nil
	})
}

// TestObservedLocalhost: 6.17, 17.16. The event about a connection to a NodePort on localhost has the
// connection that nftproxy opens for it.
func TestObservedLocalhost(t *testing.T) {
	w := newWatched(t, nil, "--observe=connections", "--nodeport-addresses=primary,localhost")
	for _, f := range model.Families {
		w.becomes(w.Node, onLocalhost(w.web, f), nil)
	}
	eventually(t, func() error {
		for _, f := range model.Families {
			if !slices.ContainsFunc(w.observed("service=default/web").Events, func(e api.Observation) bool {
				client, err := netip.ParseAddrPort(e.Client)
				return err == nil && client.Addr() == w.Node.Address(f) && e.Frontend == w.web.nodePort(w.Node, f).String() &&
					e.Outcome == model.Served.String()
			}) {
				return fmt.Errorf("no event about the connection of the node over %s", f)
			}
		}
		return nil
	})
}
