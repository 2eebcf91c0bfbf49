package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// place is an error that has a String method of its own.
type place struct{ error }

func (place) String() string { return "line 1" }

// TestJSONValues: 13.24, a value of a log line in JSON is the text that the text
// format has, a number, or a list or object of these; durations are seconds.
func TestJSONValues(t *testing.T) {
	var out bytes.Buffer
	newLogger(&out, "json", new(slog.LevelVar)).Info("message", "service", model.ServiceName{Namespace: "default", Name: "web"},
		"family", model.IPv6, "object", model.Object{Kind: "Node", Name: "node-1"},
		"address", netip.MustParseAddrPort("[::1]:80"), "error", place{errors.New("taken")}, "retried", 3900*time.Microsecond, "lines", 2,
		"listener", &net.TCPAddr{IP: net.IPv6loopback, Port: 80}, "names", []model.ServiceName{{Namespace: "default", Name: "web"}},
		"addresses", []netip.Addr{netip.MustParseAddr("192.0.2.1")}, "counts", map[string]int{"chain": 1}, "none", []string(nil), "nil", nil)
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"msg": "message", "service": "default/web", "family": "IPv6", "object": "Node node-1",
		"address": "[::1]:80", "error": "taken", "retried": 0.0039, "lines": 2.0,
		"listener": "[::1]:80", "names": []any{"default/web"}, "addresses": []any{"192.0.2.1"},
		"counts": map[string]any{"chain": 1.0}, "none": []any{}, "nil": nil} {
		if !reflect.DeepEqual(got[key], want) {
			t.Errorf("%s is %v, want %v (13.24)", key, got[key], want)
		}
	}
}
