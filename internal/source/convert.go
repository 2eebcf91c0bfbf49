package source

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// FieldError is a problem with one field of an object.
type FieldError = manifest.FieldError

// findings collects the field errors of one object.
type findings []*FieldError

// add reports a field. value is nil where there is none to show.
func (f *findings) add(field string, value any, problem string) {
	*f = append(*f, &FieldError{Field: field, Value: printValue(value), Problem: problem})
}

// warn reports a field that the API server accepts.
func (f *findings) warn(field string, value any, problem string) {
	*f = append(*f, &FieldError{Field: field, Value: printValue(value), Problem: problem, Warning: true})
}

func printValue(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return manifest.Quote(v)
	}
	return fmt.Sprint(value)
}

// objectName checks the names of an object. Names end up in comments of the
// ruleset: what the API server would refuse is unusable.
func (f *findings) objectName(m *metav1.ObjectMeta) bool {
	before := len(*f)
	switch {
	case m.Name == "":
		f.add("metadata.name", nil, "missing: every object needs a name")
	case len(validation.IsDNS1123Subdomain(m.Name)) > 0:
		f.add("metadata.name", m.Name, "is not a name: use lower case letters, digits, '-' and '.'")
	}
	if m.Namespace != "" && len(validation.IsDNS1123Label(m.Namespace)) > 0 {
		f.add("metadata.namespace", m.Namespace, "is not a namespace: use lower case letters, digits and '-'")
	}
	return len(*f) == before
}

// namespace returns the namespace of an object that lives in one.
func namespace(m *metav1.ObjectMeta) string {
	if m.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return m.Namespace
}

// portNameProblem says what is wrong with the name of a port; an empty name is
// legal (1.10).
func portNameProblem(name string) string {
	if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		return "is not a port name: use at most 63 lower case letters, digits and '-'"
	}
	return ""
}

// portProblem says what is wrong with a port number.
func portProblem(port int32) string {
	if port < 1 || port > 65535 {
		return "is not a port number: use 1 to 65535"
	}
	return ""
}

// oneOf returns for example `use "IPv4", "IPv6" or "FQDN"`.
func oneOf(values ...string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}
	last := len(quoted) - 1
	return "use " + strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}
