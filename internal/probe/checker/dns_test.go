package checker_test

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/model"
)

// dnsServer answers each query with what change makes of a good answer.
func dnsServer(change func(query, answer *dnsmessage.Message) [][]byte) func([]byte) [][]byte {
	return func(d []byte) [][]byte {
		var query dnsmessage.Message
		if query.Unpack(d) != nil || len(query.Questions) != 1 || query.Response || !query.RecursionDesired {
			return nil
		}
		a := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true}, Questions: query.Questions}
		return change(&query, &a)
	}
}

func pack(m *dnsmessage.Message) [][]byte {
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return [][]byte{b}
}

// TestDNS: 3.32, response codes, and answers to other queries.
func TestDNS(t *testing.T) {
	ns := machine(t)
	code := func(c dnsmessage.RCode) func(_, a *dnsmessage.Message) [][]byte {
		return func(_, a *dnsmessage.Message) [][]byte {
			a.RCode = c
			return pack(a)
		}
	}
	for _, c := range []struct {
		name   string
		change func(q, a *dnsmessage.Message) [][]byte
		check  string
		want   string
	}{
		{"NOERROR", code(dnsmessage.RCodeSuccess), "dns", ""},
		{"NXDOMAIN", code(dnsmessage.RCodeNameError), "{dns: www.example.com}", ""},
		{"NXDOMAIN where the name has to exist", code(dnsmessage.RCodeNameError), "{dns: www.example.com, rcode: NOERROR}",
			"dns www.example.com. A: NXDOMAIN, expected NOERROR"},
		{"SERVFAIL", code(dnsmessage.RCodeServerFailure), "{dns: www.example.com, query: AAAA}",
			"dns www.example.com. AAAA: SERVFAIL, expected NOERROR or NXDOMAIN"},
		{"REFUSED is accepted", code(dnsmessage.RCodeRefused), "{dns, rcode: [NOERROR, REFUSED]}", ""},
		{"an unknown code", code(11), "dns", "dns . NS: response code 11, expected NOERROR or NXDOMAIN"},
		{"truncated", func(_, a *dnsmessage.Message) [][]byte {
			a.Truncated = true
			return pack(a)
		}, "dns", ""},
		{"the name in capitals", func(_, a *dnsmessage.Message) [][]byte {
			a.Questions[0].Name = dnsmessage.MustNewName(strings.ToUpper(a.Questions[0].Name.String()))
			return pack(a)
		}, "{dns: www.example.com}", ""},
		{"without the question", func(_, a *dnsmessage.Message) [][]byte {
			a.Questions, a.RCode = nil, dnsmessage.RCodeFormatError
			return pack(a)
		}, "dns", "dns . NS: FORMERR, expected NOERROR or NXDOMAIN"},
		{"another id", func(_, a *dnsmessage.Message) [][]byte {
			a.ID++
			return pack(a)
		}, "{dns, timeout: 100ms}", "dns . NS: no answer within 100ms"},
		{"another question", func(_, a *dnsmessage.Message) [][]byte {
			a.Questions[0].Type = dnsmessage.TypeMX
			return pack(a)
		}, "{dns, timeout: 100ms}", "dns . NS: no answer within 100ms"},
		{"the query comes back", func(q, _ *dnsmessage.Message) [][]byte { return pack(q) }, "{dns, timeout: 100ms}", "dns . NS: no answer within 100ms"},
		{"garbage before the answer", func(_, a *dnsmessage.Message) [][]byte { return append([][]byte{{}, []byte("garbage")}, pack(a)...) }, "dns", ""},
		{"silence", func(_, _ *dnsmessage.Message) [][]byte { return nil }, "{dns, timeout: 100ms}", "dns . NS: no answer within 100ms"},
	} {
		for _, at := range both {
			compare(t, c.name, check(t, ns, c.check, target(answer(t, ns, at, dnsServer(c.change)))), c.want)
		}
	}
	for _, at := range both {
		compare(t, "closed", check(t, ns, "dns", target(closedPort(t, ns, at))), "dns . NS: refused")
	}
}

// TestDNSOverTCP: 3.32, a Service whose port is one of TCP.
func TestDNSOverTCP(t *testing.T) {
	ns := machine(t)
	for name, c := range map[string]struct {
		change func(q, a *dnsmessage.Message) [][]byte
		want   string
	}{
		"answers": {func(_, a *dnsmessage.Message) [][]byte { return pack(a) }, ""},
		"refuses": {func(_, a *dnsmessage.Message) [][]byte {
			a.RCode = dnsmessage.RCodeRefused
			return pack(a)
		}, "dns . NS: REFUSED, expected NOERROR or NXDOMAIN"},
		"another id": {func(_, a *dnsmessage.Message) [][]byte {
			a.ID++
			return pack(a)
		}, "dns . NS: the answer is not to this query"},
		"closes":        {func(_, _ *dnsmessage.Message) [][]byte { return nil }, "dns . NS: connection closed without an answer"},
		"is incomplete": {func(_, a *dnsmessage.Message) [][]byte { return [][]byte{append(pack(a)[0], 0)[:5]} }, "dns . NS: the answer is not to this query"},
	} {
		to := target(listen(t, ns, both[0], func(conn net.Conn) {
			var length [2]byte
			_, _ = io.ReadFull(conn, length[:])
			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			_, _ = io.ReadFull(conn, query)
			for _, a := range dnsServer(c.change)(query) {
				_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
			}
		}))
		to.Protocol = model.TCP
		compare(t, name, check(t, ns, "dns", to), c.want)
	}
	to := target(closedPort(t, ns, both[1]))
	to.Protocol = model.TCP
	compare(t, "closed", check(t, ns, "dns", to), "connect: refused")
}
