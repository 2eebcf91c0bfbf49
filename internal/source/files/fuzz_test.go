package files

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// hostile are inputs with terminal escapes that messages must not contain.
var hostile = []string{
	`{apiVersion: v1, kind: "Pod\e[31m", metadata: {name: a}}`,
	`{apiVersion: "\e[2J/v1", kind: Service, metadata: {name: a}}`,
	`{apiVersion: v1, kind: Service, metadata: {name: "\e[31m", namespace: "\n"}}`,
	`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {"\e[31m": 1, clusterIP: "\e[31m", type: "\x7f"}}`,
	`{apiVersion: v1, kind: Service, metadata: {name: a, annotations: {"nftproxy.dev/\e[31m": "\e"}}, spec: {clusterIP: 10.96.0.1}}`,
	`{apiVersion: v1, kind: Service, metadata: {name: a, annotations: {nftproxy.dev/scheduler: "\e"}}, spec: {clusterIP: 10.96.0.1}}`,
	`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: [1, "\e"], ports: "\e"}}`,
	`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: "IPv4", metadata: {name: a, labels: {kubernetes.io/service-name: "\e[31m"}}}`,
	`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: "\e", metadata: {name: a, annotations: {nftproxy.dev/weight: "\e"}, labels: {kubernetes.io/service-name: a}}}`,
	`{apiVersion: v1, kind: "\e[31mService", metadata: {name: a}}`,
	"\"a\\e[31m\": *\x1b\n", "- &\u0085a *\u0085\n", "kind: !<\u2028> x\n", "{\"kind\": \"\x1b\"}", "{\"ki\u001bnd\": 1, \"ki\u001bnd\": 1}",
}

// FuzzLoad checks that any input gives a snapshot or errors that name the file and
// can be printed, never both and never a panic; and that it gives the same again.
// What is loaded can be rendered.
func FuzzLoad(f *testing.F) {
	for _, text := range sourcetest.Seeds(f) {
		if len(text) < 4096 {
			f.Add(text)
		}
	}
	for _, text := range hostile {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := load(string(text))
		if (in == nil) == (err == nil) {
			t.Fatalf("Load() = %v, %v", in, err)
		}
		again, sameErr := load(string(text))
		if !reflect.DeepEqual(in, again) || !reflect.DeepEqual(err, sameErr) {
			t.Fatalf("Load() = %+v, %v, then %+v, %v", in, err, again, sameErr)
		}
		if err != nil {
			sourcetest.CheckErrors(t, err)
		} else {
			for _, w := range in.Warnings.Lines() {
				if !sourcetest.IsPlain(w) {
					t.Errorf("a warning that cannot be printed: %q", w)
				}
			}
			sourcetest.CheckRules(t, in.Snapshot)
		}
	})
}

// FuzzEdit checks that a file that changes into any other one gives what a reader of the other one
// gives; with isolation, or else what the first one gave.
func FuzzEdit(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, list := range []bool{false, true} {
		for _, text := range edits(list, 4, 10) {
			f.Add([]byte(text), []byte(withStrayLine(r, text)))
			f.Add([]byte(withStrayLine(r, text)), []byte(text))
		}
	}
	path := filepath.Join(f.TempDir(), "services.yaml")
	f.Fuzz(func(t *testing.T, before, after []byte) {
		path := fmt.Sprint(path, os.Getpid()) // of this worker
		plain := &Reader{Paths: []string{path}, follows: true}
		isolated := &Reader{Paths: []string{path}, Isolation: NewIsolation(nil)}
		valid := new(model.Snapshot)
		for _, text := range [][]byte{before, after} {
			check(t, os.WriteFile(path, text, 0o600))
			want, wantErr := (&Reader{Paths: []string{path}}).Load()
			got, err := plain.Load()
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%v, want %v", err, wantErr)
			}
			if err == nil {
				valid = want.Snapshot
				if want.contents, got.contents = nil, nil; !reflect.DeepEqual(got, want) {
					t.Fatalf("%+v, want %+v", got, want)
				}
			}
			in, err := isolated.Load()
			if err != nil || (len(in.Unused) > 0) != (wantErr != nil) || !reflect.DeepEqual(in.Snapshot, valid) {
				t.Fatalf("with isolation %+v, %v, want %+v", in, err, valid)
			}
		}
	})
}
