package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// place is an error that has a String method of its own.
type place struct{ error }

func (place) String() string { return "line 1" }

// TestJSONValues: a value of a log line in JSON is the text that the text format
// has.
func TestJSONValues(t *testing.T) {
	var out bytes.Buffer
	newLogger(&out, "json", new(slog.LevelVar)).Info("message", "service", model.ServiceName{Namespace: "default", Name: "web"},
		"family", model.IPv6, "object", model.Object{Kind: "Node", Name: "node-1"},
		"address", netip.MustParseAddrPort("[::1]:80"), "error", place{errors.New("taken")}, "retried", time.Second, "lines", 2)
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"msg": "message", "service": "default/web", "family": "IPv6", "object": "Node node-1",
		"address": "[::1]:80", "error": "taken", "retried": float64(time.Second), "lines": 2.0} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}
