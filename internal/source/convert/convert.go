// Package convert turns objects of the Kubernetes API types, wherever they come from, into
// values of the model, together with a [manifest.FieldError] for each field that is wrong. A
// wrong field never costs the rest of the object (1.36).
//
// Annotations under nftproxy.dev/ say what Kubernetes has no field for: see annotations.go.
package convert

import (
	"fmt"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Findings collects the findings about one object.
type Findings struct{ manifest.Findings }

// ObjectName checks the names of an object. Names end up in comments of the
// ruleset: a name that the API server would refuse is unusable.
func (f *Findings) ObjectName(m *metav1.ObjectMeta) bool {
	before := f.Count
	switch {
	case m.Name == "":
		f.Add("metadata.name", nil, "missing: every object needs a name")
	case !IsPlainLabel(m.Name) && !isSubdomain(m.Name):
		f.Add("metadata.name", m.Name, "is not a name: use lower case letters, digits, '-' and '.'")
	}
	if m.Namespace != "" && !IsPlainLabel(m.Namespace) {
		f.Add("metadata.namespace", m.Namespace, "is not a namespace: use lower case letters, digits and '-'")
	}
	return f.Count == before
}

// IsPlainLabel reports whether text is valid as a label of a DNS name, and so as a name of any kind. Nearly all
// names are; the regular expressions of the library take a tenth of the time of a conversion.
func IsPlainLabel(text string) bool {
	if len(text) > validation.DNS1123LabelMaxLength {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c != '-' || i == 0 || i == len(text)-1:
			return false
		}
	}
	return text != ""
}

// isSubdomain reports whether text is valid as the name of an object. The library searches texts of any length.
func isSubdomain(text string) bool {
	return len(text) <= validation.DNS1123SubdomainMaxLength && len(validation.IsDNS1123Subdomain(text)) == 0
}

func namespaceOf(m *metav1.ObjectMeta) string {
	if m.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return shareText(m.Namespace)
}

// shareText returns text that many objects hold, such as the name of a node, so that there is one copy of it.
func shareText(text string) string { return unique.Make(text).Value() }

func portProblem(port int32) string {
	if port < 1 || port > 65535 {
		return "is not a port number: use 1 to 65535"
	}
	return ""
}

// convertPort converts a port of a Service, a slice or Endpoints. Empty names are legal (1.10) unless there are other ports.
func (f *Findings) convertPort(at manifest.FieldPath, name string, protocol corev1.Protocol, number int32, others bool) model.EndpointPort {
	p, known := protocols[protocol]
	if !known {
		f.AddAt(at.Of("protocol"), string(protocol), "is not a protocol: "+suggest.OneOf("TCP", "UDP", "SCTP"))
	}
	if problem := portProblem(number); problem != "" {
		f.AddAt(at.Of("port"), number, problem)
	}
	switch {
	case name == "" && others:
		f.AddAt(at.Of("name"), nil, "missing: each port needs a name where there are several")
	case name != "" && !IsPlainLabel(name):
		f.AddAt(at.Of("name"), name, "is not a port name: use at most 63 lower case letters, digits and '-'")
	}
	return model.EndpointPort{Name: shareText(name), Protocol: p, Port: uint16(number)}
}

// usablePorts converts ports with a function, and leaves out those with findings.
func usablePorts[T any](f *Findings, n int, convert func(i int) T) []T {
	out := make([]T, 0, n)
	for i := range n {
		before := f.Count
		if p := convert(i); f.Count == before {
			out = append(out, p)
		}
	}
	return out
}

// protocols are in capitals, as for the API server; the default is TCP (2.9).
var protocols = map[corev1.Protocol]model.Protocol{
	"": model.TCP, corev1.ProtocolTCP: model.TCP, corev1.ProtocolUDP: model.UDP, corev1.ProtocolSCTP: model.SCTP,
}

// Word returns the value of a field that may have one of a few or none, and nothing for another value.
func (f *Findings) Word(at manifest.FieldPath, text string, known ...string) string {
	if text == "" || slices.Contains(known, text) {
		return text
	}
	f.AddAt(at, text, "is unknown: "+suggest.OneOf(known...))
	return ""
}

func appendParsed[T any](f *Findings, to []T, at manifest.FieldPath, text string, parse func(string) (T, string)) []T {
	v, problem := parse(text)
	if problem != "" {
		f.AddAt(at, text, problem)
		return to
	}
	return append(to, v)
}

func removeDuplicates[T comparable](list []T) []T {
	if len(list) < 2 {
		return list
	}
	seen := make(map[T]struct{}, len(list))
	return slices.DeleteFunc(list, func(v T) bool {
		_, twice := seen[v]
		seen[v] = struct{}{}
		return twice
	})
}

// readEntries reads a list in an annotation, with commas: read is called for each entry and
// returns the problem with it, which report adds as [Findings.add] and [Findings.warn] do.
// entries returns how many entries are wrong; those beyond the limit count as one.
func (f *Findings) readEntries(annotation, text string, report func(field string, value any, problem string), read func(i int, entry string) string) (wrong int) {
	field, i := annotationField(annotation), 0
	for entry := range strings.SplitSeq(text, ",") {
		if i == budget.ListEntries {
			report(field, nil, fmt.Sprintf("has more than %d entries: the others are not used; shorten the list", budget.ListEntries))
			wrong++
			break
		}
		entry = strings.TrimSpace(entry)
		if problem := read(i, entry); problem != "" {
			if wrong++; wrong <= budget.WrongEntries {
				report(field, entry, problem)
			}
		}
		i++
	}
	if more := wrong - budget.WrongEntries; more > 0 {
		report(field, nil, fmt.Sprintf("has %d more wrong entries", more))
	}
	return wrong
}
