package cluster

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// protobuf returns the serializer of a client, and that of client-go.
func protobuf(tb testing.TB) (ours, plain runtime.Serializer) {
	tb.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &metav1.Status{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	find := func(n runtime.NegotiatedSerializer) runtime.Serializer {
		info, ok := runtime.SerializerInfoForMediaType(n.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		if !ok {
			tb.Fatal("no protobuf")
		}
		return info.Serializer
	}
	return find(trimming{codecs, unread}), find(codecs)
}

func encode(tb testing.TB, s runtime.Serializer, o runtime.Object) []byte {
	tb.Helper()
	var out bytes.Buffer
	if err := s.Encode(o, &out); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func decodeAs[T runtime.Object](tb testing.TB, s runtime.Decoder, data []byte) T {
	tb.Helper()
	o, _, err := s.Decode(data, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return o.(T)
}

// full returns an object of which all fields have random values.
func full[T any](seed int64) *T {
	o := new(T)
	randfill.NewWithSeed(seed).NilChance(0).NumElements(1, 3).MaxDepth(12).Fill(o)
	return o
}

func trimMetadata(m *metav1.ObjectMeta) {
	m.UID, m.OwnerReferences, m.Finalizers, m.ManagedFields = "", nil, nil, nil
}

func trimService(s *corev1.Service) {
	trimMetadata(&s.ObjectMeta)
	s.Spec.Selector, s.Status.Conditions = nil, nil
}

func trimSlice(s *discoveryv1.EndpointSlice) {
	trimMetadata(&s.ObjectMeta)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Hostname, e.TargetRef, e.DeprecatedTopology = nil, nil, nil
	}
}

func trimNode(n *corev1.Node) {
	trimMetadata(&n.ObjectMeta)
	s := &n.Status
	s.Capacity, s.Allocatable, s.Conditions, s.NodeInfo = nil, nil, nil, corev1.NodeSystemInfo{}
	s.Images, s.VolumesInUse, s.VolumesAttached = nil, nil, nil
}

// checkTrim decodes an object and checks that exactly the unread fields are missing,
// and that the conversion does not read them.
func checkTrim[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, kind metav1.TypeMeta, o P, remove func(P), convert func(P) (any, []*manifest.FieldError)) {
	t.Helper()
	ours, plain := protobuf(t)
	o.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind())
	want := decodeAs[P](t, plain, encode(t, plain, o))
	all, allFound := convert(want)
	remove(want)
	got := decodeAs[P](t, ours, encode(t, plain, o))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	some, someFound := convert(got)
	if diff := cmp.Diff(all, some, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, model.Place{})); diff != "" {
		t.Error("the conversion reads a removed field: ", diff)
	}
	if diff := cmp.Diff(allFound, someFound); diff != "" {
		t.Error("the conversion reads a removed field: ", diff)
	}
}

// TestTrim: 2.25, objects of the API server are converted as if they were complete.
func TestTrim(t *testing.T) {
	for seed := range int64(50) {
		service := full[corev1.Service](seed)
		service.Name, service.Namespace, service.Spec.Type, service.Spec.ClusterIP = "web", "a", "LoadBalancer", "10.96.0.1"
		delete(service.Labels, convert.LabelProxyName)
		checkTrim(t, metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, service, trimService, func(s *corev1.Service) (any, []*manifest.FieldError) {
			return convert.Service(s, "")
		})
		slice := full[discoveryv1.EndpointSlice](seed)
		slice.Name, slice.Namespace, slice.AddressType = "web-1", "a", "IPv4"
		slice.Labels[discoveryv1.LabelServiceName] = "web"
		slice.Endpoints[0].Addresses = []string{"10.128.0.1"}
		checkTrim(t, metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, slice, trimSlice, func(s *discoveryv1.EndpointSlice) (any, []*manifest.FieldError) {
			return convert.EndpointSlice(s)
		})
		node := full[corev1.Node](seed)
		node.Name, node.Namespace = "n1", ""
		checkTrim(t, metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, node, trimNode, func(n *corev1.Node) (any, []*manifest.FieldError) {
			return convert.Node(n)
		})
	}
}

// TestTrimOther leaves other kinds as they are, such as errors in a watch.
func TestTrimOther(t *testing.T) {
	ours, plain := protobuf(t)
	status := full[metav1.Status](1)
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	data := encode(t, plain, status)
	if diff := cmp.Diff(decodeAs[*metav1.Status](t, plain, slices.Clone(data)), decodeAs[*metav1.Status](t, ours, data)); diff != "" {
		t.Error(diff)
	}
}

// FuzzTrim: malformed input is refused by the decoder as it would be without
// trimming, or is malformed in what is removed.
func FuzzTrim(f *testing.F) {
	ours, plain := protobuf(f)
	for _, o := range sourcetest.ManyObjects(1) {
		data := encode(f, plain, o.(runtime.Object))
		f.Add(data)
		f.Add(data[:len(data)-3])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, wanted := plain.Decode(slices.Clone(data), nil, nil)
		if _, _, err := ours.Decode(data, nil, nil); err != nil && wanted == nil {
			t.Errorf("%v, want no error", err)
		}
	})
}

// TestTrimWithSelectors: 3.29. Where health checks are admitted, a Service keeps its
// selector and nothing else that is not read.
func TestTrimWithSelectors(t *testing.T) {
	_, plain := protobuf(t)
	service := full[corev1.Service](1)
	service.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	data := encode(t, plain, service)
	want := service.Spec.Selector
	got := decodeAs[*corev1.Service](t, trimmer{plain, unreadWithSelectors}, data)
	if diff := cmp.Diff(want, got.Spec.Selector); diff != "" || len(want) == 0 {
		t.Errorf("selector: %s", diff)
	}
	if got.UID != "" || got.Status.Conditions != nil {
		t.Errorf("%+v", got)
	}
}
