package files

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// FuzzManifests: objects that are printed, as types of Kubernetes and as JSON, are read back as they were.
func FuzzManifests(f *testing.F) {
	for _, text := range []string{"", "?", "/x?y=1", ":", "a: b", "#", "- a", "---", "0x1", "0o7", "1e3", "yes", "null", "~", "<<", "*a", "!t", "| x", "a\tb", "a\nb\n", " a ", "\u2028", "\u0085", "\r", "\ufeff", "\x00", "\x7f", strings.Repeat("long ", 3000)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?") // JSON has no other
		s := &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Name: text, Annotations: map[string]string{"a": text}, Labels: map[string]string{"a": text}},
			Spec:       corev1.ServiceSpec{LoadBalancerSourceRanges: []string{text, text}},
		}
		given, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range []any{s, json.RawMessage(given)} {
			written, err := manifestText(object)
			if err != nil {
				if strings.ContainsRune(text, '\ufffd') {
					continue // which may stand for bytes that are no text
				}
				t.Fatalf("%v for %q", err, text)
			}
			documents, err := manifest.Split("test", written)
			if err != nil || len(documents) != 1 {
				t.Fatalf("%d documents, %v in\n%.2000s", len(documents), err, written)
			}
			o, problem := documents[0].Parse()
			if problem != nil {
				t.Fatalf("%v in\n%.2000s", problem, written)
			}
			got := new(corev1.Service)
			if problems := o.Decode(got); len(problems) > 0 {
				t.Fatalf("%v in\n%.2000s", problems, written)
			}
			if diff := cmp.Diff(s, got); diff != "" {
				t.Errorf("%s from\n%.2000s", diff, written)
			}
		}
	})
}

// TestManifestsOfBrokenText: JSON with bytes that are no UTF-8 is written as it was read (found by FuzzBalance).
func TestManifestsOfBrokenText(t *testing.T) {
	in, err := (&Reader{Paths: []string{"-"}, Keep: true, Stdin: strings.NewReader("{\"apiVersion\": \"v1\", \"kind\": \"Service\", " +
		"\"metadata\": {\"name\": \"web\", \"annotations\": {\"a\": \"\xf7\xf7b\"}}, \"spec\": {\"clusterIP\": \"10.96.0.1\", \"ports\": [{\"port\": 80}]}}")}).Load()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := in.WriteManifests(&text); err != nil || !strings.Contains(text.String(), "a: \ufffd\ufffdb\n") {
		t.Errorf("%v, written is\n%s", err, &text)
	}
}
