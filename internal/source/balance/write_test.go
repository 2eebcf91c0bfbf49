package balance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestText: a document has the fields that are given, and texts that YAML would read as
// something else have quotes.
func TestText(t *testing.T) {
	three, limit := int32(3), int64(100)
	b := Balance{
		Kind: Kind, Name: "12", Description: "a: b # c\n- d", Listen: []string{"203.0.113.10:443", "[2001:db8::10]:443"},
		Protocol: []string{"tcp"},
		Backends: []Backend{{Address: "10.128.0.2:8443"}, {Address: "[fd00::2]:8443", Weight: &three, Backup: true}},
		Shared: Shared{
			Affinity: &metav1.Duration{Duration: 10 * time.Minute}, Deny: []string{"2001:db8::/32"},
			Limits: &Limits{Connections: &limit}, Check: map[string]any{"http": "/", "host": "yes"},
		},
	}
	const want = `kind: Balance
name: "12"
description: "a: b # c\n- d"
listen: [203.0.113.10:443, "[2001:db8::10]:443"]
protocol: tcp
backends:
- 10.128.0.2:8443
- {address: "[fd00::2]:8443", weight: 3, backup: true}
affinity: 10m
deny: 2001:db8::/32
limits: {connections: 100}
check: {host: "yes", http: /}
`
	if got, err := b.Text(); err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	if _, err := (&Balance{Shared: Shared{Check: func() {}}}).Text(); err == nil {
		t.Error("a function as a check has a text")
	}
}
