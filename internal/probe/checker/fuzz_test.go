package checker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// FuzzAnswers: whatever an endpoint answers gives a result, or an error of one short
// printable line.
func FuzzAnswers(f *testing.F) {
	good := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, Response: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeNS, Class: dnsmessage.ClassINET}}}
	packed, err := good.Pack()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{packed, {0, 0, 0, 0, 2, 8, 1}, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
		[]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), []byte("SSH-2.0\r\n")} {
		f.Add(seed, "0")
	}
	to := Target{Address: netip.MustParseAddrPort("10.0.0.1:80")}
	request := &model.HTTPCheck{Method: "GET", Path: "/", Body: "ok", Matches: "o.*k", Status: []model.StatusRange{{First: 200, Last: 399}}}
	web, err := newHTTPCheck(&model.Check{Type: model.CheckHTTP, HTTP: request}, to)
	if err != nil {
		f.Fatal(err)
	}
	dns, err := newDNSCheck(&model.Check{Type: model.CheckDNS, Name: ".", Query: "NS", Rcodes: []string{"NOERROR"}}, to)
	if err != nil {
		f.Fatal(err)
	}
	rpc := newGRPCCheck(&model.Check{Type: model.CheckGRPC, Name: "a"}, to)
	f.Fuzz(func(t *testing.T, data []byte, code string) {
		r, err := web.request(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{web.exchange(conversation{bytes.NewReader(data), io.Discard}, r), dns.result(binary.BigEndian.Uint16([]byte{0, 7}), data),
			rpc.result(data, code), unexpected("ok", data)} {
			if err == nil {
				continue
			}
			l := &limited{fails{in("step", err)}, &model.Check{Timeout: time.Second}}
			text := l.Check(context.Background()).Error()
			if len(text) > 4*budget.CheckError || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) || errors.Is(err, ErrLocal) {
				t.Errorf("error %q", text)
			}
		}
	})
}

type conversation struct {
	io.Reader
	io.Writer
}

// fails is a check that fails.
type fails struct{ error }

func (f fails) run(context.Context) error { return f.error }
