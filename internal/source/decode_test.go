package source

import (
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestDecodeEqualsLibrary decodes what kubectl prints as Kubernetes does.
func TestDecodeEqualsLibrary(t *testing.T) {
	text, err := os.ReadFile("testdata/good/kubectl-list.yaml")
	check(t, err)
	root, err := parseYAML(text)
	check(t, err)
	var list struct {
		Items []map[string]any `json:"items"`
	}
	check(t, yaml.Unmarshal(text, &list))
	_, items := lookup(root, "items")
	if len(items.Content) != len(list.Items) {
		t.Fatalf("%d items, want %d", len(items.Content), len(list.Items))
	}
	for i, n := range items.Content {
		switch list.Items[i]["kind"] {
		case "Service":
			decodeBoth(t, n, list.Items[i], &corev1.Service{}, &corev1.Service{})
		case "EndpointSlice":
			decodeBoth(t, n, list.Items[i], &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSlice{})
		case "Node":
			decodeBoth(t, n, list.Items[i], &corev1.Node{}, &corev1.Node{})
		}
	}
}

func decodeBoth(t *testing.T, n *yamlv3.Node, item map[string]any, got, want metav1.Object) {
	t.Helper()
	d := &decoder{types: make(map[reflect.Type]*structType)}
	if mistakes := d.decode(n, got); len(mistakes) > 0 {
		t.Error(mistakes)
	}
	check(t, yaml.UnmarshalStrict(marshal(t, item), want))
	fields := want.GetManagedFields()
	for i := range fields {
		fields[i].FieldsV1 = nil
		got.GetManagedFields()[i].FieldsV1 = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-library +decoder):\n%s", diff)
	}
}

// TestDecodeTypes shows that the decoder can fill every field of every kind.
func TestDecodeTypes(t *testing.T) {
	d := &decoder{types: make(map[reflect.Type]*structType)}
	seen := make(map[reflect.Type]bool)
	for _, kind := range []reflect.Type{
		reflect.TypeFor[corev1.Service](), reflect.TypeFor[corev1.Node](), reflect.TypeFor[discoveryv1.EndpointSlice](),
		reflect.TypeFor[networkingv1.ServiceCIDR](),
		//lint:ignore SA1019 files may still hold Endpoints
		reflect.TypeFor[corev1.Endpoints](),
	} {
		walk(t, d, kind, seen, kind.Name())
	}
}

func walk(t *testing.T, d *decoder, typ reflect.Type, seen map[reflect.Type]bool, path string) {
	if seen[typ] {
		return
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		walk(t, d, typ.Elem(), seen, path+"[]")
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64:
	case reflect.Struct:
		s := d.structType(typ)
		for name, f := range s.fields {
			if f.bit == 0 {
				t.Errorf("%s has too many fields to find duplicates", path)
			}
			walk(t, d, typ.FieldByIndex(f.index).Type, seen, path+"."+name)
		}
	default:
		t.Errorf("%s: the decoder does not know %s", path, typ)
	}
}
