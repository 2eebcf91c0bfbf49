package balance

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// awkward are texts that YAML reads as something else without quotes, or that end a value early.
var awkward = []string{
	"?", "/x?y=1", ":", ":80", "a:", "a: b", "#", "a #b", "-", "- a", "-leading", "---", "...", "0x1", "0o7", "1_000", "1e3", ".inf", "yes", "No", "on", "null", "~", "true",
	"2026-01-31", "12:30:45", "<<", "*a", "&a", "!t", "!!binary", "| x", "> x", "%a", "@a", "`a", "'", `"`, `\`, "a\tb", "\ta", "a\r\nb", "a\nb\n", "[", "]", "{", "}", "{a}", "a, b",
	" a ", "é", "\u2028", "\ufeff", "\x00", "\x7f", "\u0085", "\xff", "a\xffb", strings.Repeat("long ", 3000),
}

// FuzzText: a Balance and a list of servers whose texts are all the same one are read back as they were.
func FuzzText(f *testing.F) {
	for _, text := range awkward {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		three, table := int32(3), int64(7)
		port := intstr.FromString(text)
		b := Balance{
			APIVersion: Version, Kind: Kind, Name: text, Namespace: text, Description: text, Listen: []string{text, text}, Protocol: []string{text},
			Backends:     []Backend{{Address: text}, {Address: text, Weight: &three}, {Servers: text, Port: &port, Backup: true}},
			BackendsFrom: text,
			Shared: Shared{
				Scheduler: text, MaglevTableSize: &table, Affinity: &metav1.Duration{Duration: 90 * time.Second}, Clients: []string{text}, Deny: []string{text, text},
				ClientAddresses: text, Limits: &Limits{Rate: text}, Check: map[string]any{"http": text, "status": []any{text, text}}, OnFailure: text,
				SlowStart: &metav1.Duration{Duration: 1500 * time.Millisecond}, Relay: text, Timeout: &metav1.Duration{Duration: time.Minute}, Observe: text, FastPath: text, Announce: text,
			},
		}
		p := Pool{APIVersion: Version, Kind: PoolKind, Name: text, Namespace: text, Description: text, Servers: []Backend{{Address: text}, {Address: text, Drain: true}}, Check: map[string]any{"tcp": nil, "send": text}}
		readBack(t, &b, b.Text)
		readBack(t, &p, p.Text)
	})
}

// readBack compares a document with what its text is read as.
func readBack[T any](t *testing.T, want *T, write func() (string, error)) {
	t.Helper()
	text, err := write()
	if err != nil {
		return // YAML has no such text, as the caller learns
	}
	documents, err := manifest.Split("test", []byte(text))
	if err != nil || len(documents) != 1 {
		t.Fatalf("%d documents, %v in\n%.2000s", len(documents), err, text)
	}
	o, problem := documents[0].Parse()
	if problem != nil {
		t.Fatalf("%v in\n%.2000s", problem, text)
	}
	got := new(T)
	if problems := o.DecodeShort(got); len(problems) > 0 {
		t.Fatalf("%v in\n%.2000s", problems, text)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v\nfrom\n%.2000s", got, want, text)
	}
}
