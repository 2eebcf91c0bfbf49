package conntest

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// answers is a peer that answers any request with a text.
type answers []byte

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(a))}, nil
}

// endless is an answer without an end.
type endless struct{}

func (endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: endless{}}, nil
}
func (endless) Read(b []byte) (int, error) { return len(b), nil }
func (endless) Close() error               { return nil }

// TestEndlessResults: a peer does not fill the memory of the program that asks it.
func TestEndlessResults(t *testing.T) {
	var n int64
	err := (&Remote{Transport: endless{}}).ask(t.Context(), DialPath, nil, func(body io.Reader) (err error) {
		n, err = io.Copy(io.Discard, body)
		return err
	})
	if err != nil || n != budget.Answer {
		t.Errorf("%d bytes are read, %v", n, err)
	}
}

// FuzzPeer: 18.16. Whatever a peer answers, results are about connections that were asked for, and an error says where they end.
func FuzzPeer(f *testing.F) {
	for _, text := range []string{`["10.0.0.1","::1"]`, `["10.0.0.1"]`, `{"index":0,"attempts":[{}]}{"index":1,"error":"\u001b"}`, `{"index":2}`, `{"index":-1}`, `{"index":0`, "null null", "[[[["} {
		f.Add([]byte(text))
	}
	to := []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &Remote{Transport: answers(text)}
		hostile.CheckMemory(t, len(text), 1024, func() {
			if from, err := r.Sources(t.Context(), to); err == nil && len(from) != len(to) {
				t.Errorf("%v from %s", from, text)
			}
			list, got := make([]Dial, len(to)), 0
			err := r.Dial(t.Context(), list, func(d *Dialled) {
				if got++; d.Index < 0 || d.Index >= len(list) {
					t.Errorf("number %d of %d", d.Index, len(list))
				}
			})
			if got > len(list) || (err == nil) != (got == len(list)) {
				t.Errorf("%d results of %d, %v, from %s", got, len(list), err, text)
			}
		})
	})
}
