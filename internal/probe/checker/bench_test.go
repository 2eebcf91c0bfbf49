package checker_test

import (
	"context"
	"io"
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/probe/checker"
)

// BenchmarkCheck makes checks of each type, one after the other; the servers are in this
// process and count, too.
func BenchmarkCheck(b *testing.B) {
	ns := machine(b)
	web := target(webServer(b, ns, both[0]))
	for _, c := range []struct {
		name, check string
		to          checker.Target
	}{
		{"tcp", "tcp", target(listen(b, ns, both[0], func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))},
		{"tcp-refused", "tcp", target(closedPort(b, ns, both[0]))},
		{"http", "http: /ok", web},
		{"http-body", "{http: /ok, body: ok}", web},
		{"https", "https: /ok", target(secureServer(b, ns, both[0], certificate(b)))},
		{"grpc", "grpc", target(grpcServer(b, ns, both[0], nil))},
		{"udp", "udp: echo", target(answer(b, ns, both[0], func(d []byte) [][]byte { return [][]byte{d} }))},
		{"dns", "dns", target(answer(b, ns, both[0], dnsServer(func(_, a *dnsmessage.Message) [][]byte { return pack(a) })))},
		{"exec", "exec: /bin/true", web},
	} {
		b.Run(c.name, func(b *testing.B) {
			made, err := checker.New(parse(b, c.check), c.to)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			err = ns.Do(func() error {
				for b.Loop() {
					if err := made.Check(context.Background()); (err == nil) == (c.name == "tcp-refused") {
						b.Errorf("result %v", err)
					}
				}
				return nil
			})
			if err != nil {
				b.Error(err)
			}
		})
	}
}
