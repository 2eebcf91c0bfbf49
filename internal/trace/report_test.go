package trace

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// TestReportInWords: 11.27. The outcome is in the words for the Service, and chains keep their names.
func TestReportInWords(t *testing.T) {
	client, dialled, server := netip.MustParseAddrPort("192.0.2.2:20001"), netip.MustParseAddrPort("203.0.113.1:80"), netip.MustParseAddrPort("10.128.0.2:8080")
	in := func(destination netip.AddrPort) Pass {
		return Pass{Hook: "forward", Packet: &Packet{Source: client, Destination: destination, Protocol: model.TCP}}
	}
	dropped := &Journey{Passes: []Pass{in(dialled)}, hook: "forward", ended: &Event{Kind: Policy, Place: Place{familyIPv4, "service", "node"}}}
	unanswered := &Journey{Passes: []Pass{in(dialled), in(server)}, arrived: true}
	for _, c := range []struct {
		first *Journey
		in    words.Vocabulary
		want  string
	}{
		{dropped, words.Balance, "dropped in forward by the policy of chain node in table ip service: no rule accepted it"},
		{unanswered, words.Balance, "it reached the server 10.128.0.2:8080 on this machine; no answer within 3s"},
		{unanswered, words.Kubernetes, "it reached the endpoint 10.128.0.2:8080 on this machine; no answer within 3s"},
	} {
		r := NewReport(&Connection{First: c.first}, Match{Protocol: model.TCP, Frontend: dialled}, &Rules{known: make(map[Place][]rule)}, c.in)
		if r.Text != c.want {
			t.Errorf("in the words %q: %q, want %q", c.in, r.Text, c.want)
		}
	}
}
