package convert

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// endpointsFrom reads the name of the Service whose endpoints complete the endpoints of a
// Service of a file. Objects of an API server must not have it: it would let the author
// of one Service reach the endpoints of every other one.
func (f *Findings) endpointsFrom(m *metav1.ObjectMeta) *model.ServiceName {
	text, given := m.Annotations[setting.EndpointsFrom.Annotation]
	if !given {
		return nil
	}
	name, problem := ParseServiceName(text)
	if problem != "" {
		f.Warn(annotationField(setting.EndpointsFrom.Annotation), text, problem)
		return nil
	}
	return &name
}

// ParseServiceName reads for example "default/kubernetes".
func ParseServiceName(text string) (name model.ServiceName, problem string) {
	namespace, service, ok := strings.Cut(strings.TrimSpace(text), "/")
	if !ok || !IsPlainLabel(namespace) || !IsPlainLabel(service) {
		return name, "is not the name of a Service: write it like default/kubernetes"
	}
	return model.ServiceName{Namespace: namespace, Name: service}, ""
}
