package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// listServer answers every request with the same list.
func listServer(t *testing.T, contentType string, answer []byte) *Client {
	t.Helper()
	return accessTo(t, Access{}, contentType, answer)
}

func accessTo(t *testing.T, access Access, contentType string, answer []byte) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	access.Master, access.ContentType = server.URL, runtime.ContentTypeProtobuf
	c, err := access.Client(slog.New(slog.DiscardHandler))
	check(t, err)
	return c
}

// someServices returns a list as an API server has it.
func someServices() *corev1.ServiceList {
	list := &corev1.ServiceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"},
	}
	for seed := range int64(3) {
		list.Items = append(list.Items, *full[corev1.Service](seed))
	}
	return list
}

// TestListWithSelectors: 3.29, where health checks are admitted, the Services of a list keep their selectors, as
// those of a watch do.
func TestListWithSelectors(t *testing.T) {
	_, plain := protobuf(t)
	list := someServices()
	c := accessTo(t, Access{Selectors: true}, runtime.ContentTypeProtobuf, encode(t, plain, list))
	i := 0
	_, err := c.Services.List(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
		want := &list.Items[i]
		if diff := cmp.Diff(want.Spec.Selector, o.(*corev1.Service).Spec.Selector); diff != "" || len(want.Spec.Selector) == 0 {
			t.Errorf("selector: %s", diff)
		}
		i++
		return nil
	})
	check(t, err)
	if i != len(list.Items) {
		t.Errorf("%d Services, want %d", i, len(list.Items))
	}
}

// TestList reads lists in both formats.
func TestList(t *testing.T) {
	list := someServices()
	_, plain := protobuf(t)
	inProtobuf := encode(t, plain, list)
	list = decodeAs[*corev1.ServiceList](t, plain, inProtobuf) // as the encoding keeps it
	list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}
	inOther := list.DeepCopy()
	for i := range inOther.Items {
		inOther.Items[i].ManagedFields = nil // random ones are no JSON
	}
	inJSON, err := json.Marshal(inOther)
	check(t, err)
	trimmed := list.DeepCopy()
	for i := range trimmed.Items {
		trimService(&trimmed.Items[i])
	}
	for _, c := range []struct {
		contentType string
		answer      []byte
		want        []corev1.Service
	}{
		{runtime.ContentTypeProtobuf, inProtobuf, trimmed.Items},
		{runtime.ContentTypeJSON, inJSON, list.Items},
	} {
		var got []corev1.Service
		m, err := listServer(t, c.contentType, c.answer).Services.List(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
			got = append(got, *o.(*corev1.Service).DeepCopy())
			return nil
		})
		check(t, err)
		if m.ResourceVersion != "7" || m.Continue != "more" {
			t.Errorf("%s: metadata %v", c.contentType, m)
		}
		if c.contentType == runtime.ContentTypeJSON { // of which times have seconds only
			if len(got) != len(c.want) || got[1].Name != c.want[1].Name {
				t.Errorf("%d Services", len(got))
			}
		} else if diff := cmp.Diff(c.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// decodeServices decodes a list without a server, and returns its number of objects.
func decodeServices(data []byte) (n int, err error) {
	r := &resource{kind: "Service", object: &corev1.Service{}, unread: unread["Service"]}
	_, err = r.decode(bytes.NewReader(data), func(runtime.Object) error { n++; return nil })
	return n, err
}

// TestListTruncated cuts a list after each of its bytes.
func TestListTruncated(t *testing.T) {
	_, plain := protobuf(t)
	list := someServices()
	list.Items = list.Items[:1]
	data := encode(t, plain, list)
	if n, err := decodeServices(data); n != 1 || err != nil {
		t.Fatalf("%d objects, %v", n, err)
	}
	const after = 4 // bytes of two empty fields after the list
	for i := range len(data) - after {
		if n, err := decodeServices(data[:i]); err == nil {
			t.Fatalf("%d objects and no error after %d of %d bytes", n, i, len(data))
		}
	}
}

// TestListMalformed: what is no list of Services is an error, and so is one of
// the caller.
func TestListMalformed(t *testing.T) {
	_, plain := protobuf(t)
	const services = envelope + "\x0a\x0d\x12\x0bServiceList"
	slices := &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}}
	for name, data := range map[string][]byte{
		"another kind": encode(t, plain, slices),
		"nothing":      nil,
		"a group":      []byte(envelope + "\x0b\x01"),
		"a huge field": []byte(services + "\x12\xff\xff\xff\xff\x7f\x12\xff\xff\xff\x7f"),
		"an object":    []byte(services + "\x12\x03\x12\x01\x0b"),
		"no kind":      []byte(envelope + "\x12\x02\x12\x00"),
		"kind at end":  []byte(envelope + "\x12\x02\x12\x00" + services[len(envelope):]),
		"two kinds":    []byte(services + services[len(envelope):] + "\x12\x02\x12\x00"),
		"two lists":    []byte(services + "\x12\x02\x12\x00\x12\x00"),
	} {
		if n, err := decodeServices(data); err == nil {
			t.Errorf("%s: %d objects and no error", name, n)
		}
	}
	failed := errors.New("failed")
	r := &resource{kind: "Service", object: &corev1.Service{}, unread: unread["Service"]}
	if _, err := r.decode(bytes.NewReader(encode(t, plain, someServices())), func(runtime.Object) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want the error of the caller", err)
	}
	for contentType, answer := range map[string]string{runtime.ContentTypeJSON: "{", runtime.ContentTypeProtobuf: "k8s"} {
		_, err := listServer(t, contentType, []byte(answer)).Services.List(t.Context(), metav1.ListOptions{}, func(runtime.Object) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "read list of services") {
			t.Errorf("%q: got %v", answer, err)
		}
	}
}

// FuzzList: the objects of a list are those that client-go decodes.
func FuzzList(f *testing.F) {
	_, plain := protobuf(f)
	data := encode(f, plain, someServices())
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := decodeServices(data)
		if err != nil {
			return
		}
		o, _, err := plain.Decode(data, nil, nil)
		if err != nil {
			return // in what is not read
		}
		if list := o.(*corev1.ServiceList); len(list.Items) != n {
			t.Errorf("%d objects, want %d", n, len(list.Items))
		}
	})
}

// BenchmarkList decodes lists as they come from an API server, and as client-go does.
func BenchmarkList(b *testing.B) {
	const n = 10_000
	services, endpoints := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
	services.APIVersion, services.Kind = "v1", "ServiceList"
	endpoints.APIVersion, endpoints.Kind = "discovery.k8s.io/v1", "EndpointSliceList"
	managed := []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", Time: &metav1.Time{},
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 300))}}
	for _, o := range sourcetest.ManyObjects(n) {
		switch o := o.(type) {
		case *corev1.Service:
			o.ManagedFields = managed
			services.Items = append(services.Items, *o)
		case *discoveryv1.EndpointSlice:
			o.ManagedFields = managed
			endpoints.Items = append(endpoints.Items, *o)
		}
	}
	_, plain := protobuf(b)
	for _, c := range []struct {
		list   runtime.Object
		reader *resource
	}{
		{services, &resource{kind: "Service", object: &corev1.Service{}, unread: unread["Service"]}},
		{endpoints, &resource{kind: "EndpointSlice", object: &discoveryv1.EndpointSlice{}, unread: unread["EndpointSlice"]}},
	} {
		data := encode(b, plain, c.list)
		b.Run(c.reader.kind+"/client-go", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				body, err := io.ReadAll(bytes.NewReader(data))
				if err != nil {
					b.Fatal(err)
				}
				decodeAs[runtime.Object](b, plain, body)
			}
		})
		b.Run(c.reader.kind+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				got := 0
				if _, err := c.reader.decode(bytes.NewReader(data), func(runtime.Object) error { got++; return nil }); err != nil || got != n {
					b.Fatal(got, err)
				}
			}
		})
	}
}
