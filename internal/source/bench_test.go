package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// manyObjects returns n Services and n EndpointSlices of 4 endpoints, with the
// fields that an API server adds.
func manyObjects(n int) []any {
	var out []any
	ready, no := true, false
	for i := range n {
		name := fmt.Sprintf("service-%d", i)
		meta := metav1.ObjectMeta{
			Name: name, Namespace: "default", ResourceVersion: "123456", UID: types.UID(fmt.Sprintf("0c1d7a52-3f0b-4b9c-8f1e-%012d", i)),
			Labels: map[string]string{"app": name},
		}
		ip := fmt.Sprintf("10.96.%d.%d", i/256, i%256)
		out = append(out, &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: meta,
			Spec: corev1.ServiceSpec{
				Type: "ClusterIP", ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{"IPv4"},
				Ports:           []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}},
				SessionAffinity: "None", Selector: map[string]string{"app": name},
			},
		})
		meta.Name += "-x7k2p"
		meta.Labels = map[string]string{"kubernetes.io/service-name": name, "app": name}
		port, portName, protocol := int32(8080), "http", corev1.ProtocolTCP
		slice := &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: meta,
			AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
		}
		for j := range 4 {
			node := fmt.Sprintf("node-%d", (i+j)%100)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", 128+j, i/256, i%256)},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &no},
				NodeName:   &node,
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("%s-%d", name, j)},
			})
		}
		out = append(out, slice)
	}
	return out
}

func marshal(tb testing.TB, v any) []byte {
	tb.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// inputs returns the same objects in each of the forms that files have.
func inputs(tb testing.TB, n int) map[string][]byte {
	tb.Helper()
	objects := manyObjects(n)
	var documents bytes.Buffer
	for _, o := range objects {
		documents.WriteString("---\n")
		documents.Write(marshal(tb, o))
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": objects}
	jsonList, err := json.MarshalIndent(list, "", "    ")
	if err != nil {
		tb.Fatal(err)
	}
	return map[string][]byte{"documents.yaml": documents.Bytes(), "list.yaml": marshal(tb, list), "list.json": jsonList}
}

func BenchmarkLoad(b *testing.B) {
	const n = 10_000
	dir := b.TempDir()
	for name, data := range inputs(b, n) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			b.Fatal(err)
		}
		b.Run(strings.ReplaceAll(name, ".", "-"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				in, err := (&Files{Paths: []string{path}}).Load()
				if err != nil || len(in.Snapshot.Services) != n || len(in.Snapshot.Slices) != n {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkClusterLoad loads all Services, and then one whose slice has changed.
func BenchmarkClusterLoad(b *testing.B) {
	const n = 10_000
	c := NewCluster(nil, ClusterConfig{Log: slog.New(slog.DiscardHandler)})
	var services, slices []any
	for _, o := range manyObjects(n) {
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			slices = append(slices, slice)
		} else {
			services = append(services, o)
		}
	}
	if err := errors.Join(c.services.Replace(services, "1"), c.slices.Replace(slices, "1")); err != nil {
		b.Fatal(err)
	}
	load := func(b *testing.B, want int) {
		if u, err := c.Load(); err != nil || len(u.Services) != want {
			b.Fatalf("%d Services, want %d; %v", len(u.Services), want, err)
		}
	}
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.changes = nil
			load(b, n)
		}
	})
	first := slices[n/2].(*discoveryv1.EndpointSlice)
	second := first.DeepCopy()
	second.Endpoints = second.Endpoints[1:]
	var versions [2]any
	for i, o := range []any{second, first} {
		var err error
		if versions[i], err = c.slices.read(o); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("event-and-one", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := c.slices.Add(versions[i%2]); err != nil {
				b.Fatal(err)
			}
			load(b, 1)
		}
	})
	b.Run("nothing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			load(b, 0)
		}
	})
}

// BenchmarkLoadDirectory loads a directory of 1,000 files, of which one has changed
// since the last time, or all are new.
func BenchmarkLoadDirectory(b *testing.B) {
	const n = 1000
	dir := b.TempDir()
	write := func(i, round int) {
		var text bytes.Buffer
		for _, o := range manyObjects(i + 1)[2*i:] {
			text.WriteString("---\n")
			text.Write(marshal(b, o))
		}
		fmt.Fprintf(&text, "# %d\n", round)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.yaml", i)), text.Bytes(), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for i := range n {
		write(i, 0)
	}
	load := func(b *testing.B, f *Files) {
		if in, err := f.Load(); err != nil || len(in.Snapshot.Services) != n {
			b.Fatal(err)
		}
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			load(b, &Files{Paths: []string{dir}})
		}
	})
	b.Run("one-changed", func(b *testing.B) {
		f := &Files{Paths: []string{dir}, follows: true}
		load(b, f)
		for round := 1; b.Loop(); round++ {
			write(0, round)
			load(b, f)
		}
	})
	b.Run("one-changed-of-a-file", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "all.yaml")
		f := &Files{Paths: []string{path}, follows: true}
		var all bytes.Buffer
		for _, o := range manyObjects(n) {
			all.WriteString("---\n")
			all.Write(marshal(b, o))
		}
		for round := 0; b.Loop(); round++ {
			if err := os.WriteFile(path, fmt.Appendf(slices.Clone(all.Bytes()), "# %d\n", round), 0o600); err != nil {
				b.Fatal(err)
			}
			load(b, f)
		}
	})
}
