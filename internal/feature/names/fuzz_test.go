package names

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzAnswer: no message makes the parser fail in another way than with an error, and none gives
// an address that no server can have.
func FuzzAnswer(f *testing.F) {
	q, err := question("app.example.com.", dnsmessage.TypeA)
	if err != nil {
		f.Fatal(err)
	}
	records, _ := question("_http._tcp.example.com.", dnsmessage.TypeSRV)
	for _, m := range []dnsmessage.Message{
		{Questions: []dnsmessage.Question{q}, Answers: []dnsmessage.Resource{resource("app.example.com.", 1, "b.example.com."), resource("b.example.com.", 1<<31, "10.1.1.2")}},
		{Questions: []dnsmessage.Question{q}, Answers: []dnsmessage.Resource{resource("app.example.com.", 1, "127.0.0.1")}},
		{Questions: []dnsmessage.Question{records}, Answers: []dnsmessage.Resource{srv("_http._tcp.example.com.", 1, 1, 1, 80, "a.")}},
		{Header: dnsmessage.Header{RCode: dnsmessage.RCodeServerFailure}},
	} {
		m.ID, m.Response = 7, true
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > budget.NameAnswer {
			return
		}
		for _, q := range []dnsmessage.Question{q, records} {
			h, p, err := begin(message, 7, q)
			if err != nil {
				continue
			}
			var a *answer
			hostile.CheckMemory(t, len(message), 256, func() { a, err = parse(&p, h, q) })
			if err == nil && slices.ContainsFunc(a.addresses, func(ip netip.Addr) bool { return !usable(ip) }) {
				t.Errorf("addresses %v", a.addresses)
			}
		}
	})
}

// FuzzState: no file makes the start fail.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"names":[{"name":"app.example.com","records":[{"address":"10.1.1.2"}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, err := parseState(data)
		for k, records := range names {
			if err != nil || len(records) > budget.NameAddresses {
				t.Errorf("%v: %d records, %v", k, len(records), err)
			}
		}
	})
}
