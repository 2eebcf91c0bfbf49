package trace

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// script is a list of events in short form, one a line: "ID chain kind verdict [from to [in out]]".
// Chains of our table have no dot, others are TABLE.CHAIN.
type script string

var ours = Place{familyIPv4, "nftproxy-trace-1", ""}

func (s script) events(t *testing.T) (out []Event) {
	t.Helper()
	kinds := map[string]Kind{"rule": Rule, "policy": Policy, "end": Return}
	interfaces := map[string]int{"-": 0, "lo": loopback, "eth0": 2, "pod": 3}
	for line := range strings.Lines(string(s)) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		e := Event{ID: uint32(f[0][0]), Place: Place{familyIPv4, ours.Table, f[1]}, Kind: kinds[f[2]], Verdict: Continue}
		if table, chain, found := strings.Cut(f[1], "."); found {
			e.Table, e.Chain = table, chain
		}
		for v, name := range verdicts {
			if name == f[3] {
				e.Verdict = v
			}
		}
		if len(f) > 4 {
			e.Packet = &Packet{Source: netip.MustParseAddrPort(f[4]), Destination: netip.MustParseAddrPort(f[5]), Protocol: model.TCP, Flags: flagSYN}
			if len(f) > 6 {
				e.Packet.In, e.Packet.Out = interfaces[f[6]], interfaces[f[7]]
			}
			if strings.HasSuffix(f[1], kindReply) {
				e.Packet.Flags = flagRST
			}
		}
		out = append(out, e)
	}
	return out
}

// TestCollector sorts events by packets and connections.
func TestCollector(t *testing.T) {
	const opened = `
		a prerouting-first rule continue 192.0.2.2:20001 10.96.0.1:80 eth0 -
		a prerouting-new rule continue 192.0.2.2:20001 10.96.0.1:80 eth0 -
		a nftproxy.prerouting rule accept 192.0.2.2:20001 10.96.0.1:80 eth0 -
		a prerouting-last policy accept 192.0.2.2:20001 10.128.0.2:8080 eth0 -
	`
	const left = `
		a postrouting-first policy accept 192.0.2.2:20001 10.128.0.2:8080 - pod
		a postrouting-last policy accept 192.0.2.2:20001 10.128.0.2:8080 - pod
	`
	for _, c := range []struct {
		name     string
		events   script
		first    string // last packet; empty: no connection
		ended    bool
		done     bool
		reply    bool
		attempts int
	}{
		{name: "nothing"},
		{name: "another program's trace", events: "x fw.forward rule drop 192.0.2.2:20001 10.96.0.1:80 eth0 -"},
		{name: "dropped before connection tracking", first: "192.0.2.2:20001 > 10.96.0.1:80", ended: true, done: true, attempts: 1, events: `
			a prerouting-first rule continue 192.0.2.2:20001 10.96.0.1:80 eth0 -
			a fw.raw rule drop 192.0.2.2:20001 10.96.0.1:80 eth0 -`},
		{name: "a datagram of an open connection", events: `
			a prerouting-first rule continue 192.0.2.2:20001 10.96.0.1:80 eth0 -
			a prerouting-new policy accept 192.0.2.2:20001 10.96.0.1:80 eth0 -
			a prerouting-last policy accept 192.0.2.2:20001 10.96.0.1:80 eth0 -`},
		{name: "to another destination", events: `
			a prerouting-first rule continue 192.0.2.2:20001 10.96.0.2:80 eth0 -
			a prerouting-new rule continue 192.0.2.2:20001 10.96.0.2:80 eth0 -`},
		{name: "it disappears", events: opened, first: "192.0.2.2:20001 > 10.128.0.2:8080", attempts: 1},
		{name: "it leaves", events: opened + left, first: "192.0.2.2:20001 > 10.128.0.2:8080", done: true, attempts: 1},
		{name: "its number is used again", first: "192.0.2.2:20001 > 10.128.0.2:8080", done: true, attempts: 2, events: opened + left + `
			a prerouting-first rule continue 192.0.2.2:20001 10.96.0.1:80 eth0 -
			a prerouting-new rule continue 192.0.2.2:20001 10.96.0.1:80 eth0 -
			a prerouting-new policy accept
			a fw.forward rule drop 192.0.2.2:20001 10.128.0.2:8080 eth0 -`},
		{name: "answered", first: "192.0.2.2:20001 > 10.128.0.2:8080", done: true, reply: true, attempts: 1, events: opened + left + `
			b prerouting-reply rule continue 10.128.0.2:8080 192.0.2.2:20001 pod -`},
		{name: "the answer to another one", first: "192.0.2.2:20001 > 10.128.0.2:8080", done: true, attempts: 1, events: opened + left + `
			b prerouting-reply rule continue 10.128.0.2:8080 192.0.2.9:20001 pod -`},
		{name: "over lo", first: "10.0.0.1:40000 > 10.0.0.1:8080", done: true, attempts: 1, events: `
			a output-first rule continue 10.0.0.1:20001 10.96.0.1:80 - lo
			a output-new rule continue 10.0.0.1:20001 10.96.0.1:80 - lo
			a output-last policy accept 10.0.0.1:20001 10.0.0.1:8080 - lo
			a postrouting-last policy accept 10.0.0.1:40000 10.0.0.1:8080 - lo
			c prerouting-first policy accept 10.0.0.1:40000 10.0.0.1:8080 lo -
			c prerouting-last policy accept 10.0.0.1:40000 10.0.0.1:8080 lo -
			c input-last policy accept 10.0.0.1:40000 10.0.0.1:8080 lo -`},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCollector(ours, Match{Protocol: model.TCP, Frontend: netip.MustParseAddrPort("10.96.0.1:80")})
			for _, e := range c.events.events(t) {
				k.add(e)
			}
			if c.first == "" {
				if k.first != nil {
					t.Errorf("a connection is followed: %v", k.first.firstPacket())
				}
				return
			}
			if k.first == nil {
				t.Fatal("no connection is followed")
			}
			if got := k.first.lastPacket().String(); got != c.first || (k.first.ended != nil) != c.ended || k.first.done() != c.done || (k.reply != nil) != c.reply || k.attempts != c.attempts {
				t.Errorf("%s, ended %v, done %t, answered %t, %d attempts; want %+v", got, k.first.ended, k.first.done(), k.reply != nil, k.attempts, c)
			}
		})
	}
}

// TestCollectorIsBounded: packets that disappear do not fill the memory.
func TestCollectorIsBounded(t *testing.T) {
	k := newCollector(ours, Match{Protocol: model.TCP, Frontend: netip.MustParseAddrPort("10.96.0.1:80")})
	for i := range uint32(3 * mostOpen) {
		e := script("a prerouting-first rule continue 192.0.2.2:20001 10.96.0.1:80 eth0 -").events(t)[0]
		e.ID = i
		k.add(e)
		if len(k.open) > mostOpen {
			t.Fatalf("%d packets are followed", len(k.open))
		}
	}
}
