package convert

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
)

// AnnotationEndpointsFrom on a Service of a file names a Service of the cluster,
// like default/kubernetes, whose endpoints the Service has in addition to its own.
const AnnotationEndpointsFrom = AnnotationDomain + "endpoints-from"

// endpointsFrom reads the name of the Service whose endpoints complete those of a
// Service of a file. Objects of an API server do not have that: it would let the author
// of one Service reach the endpoints of every other one.
func (f *Findings) endpointsFrom(m *metav1.ObjectMeta) *model.ServiceName {
	text, given := m.Annotations[AnnotationEndpointsFrom]
	if !given {
		return nil
	}
	namespace, name, ok := strings.Cut(strings.TrimSpace(text), "/")
	if !ok || !IsPlainLabel(namespace) || !IsPlainLabel(name) {
		f.Warn(AnnotationField(AnnotationEndpointsFrom), text, "is not the name of a Service: write it like default/kubernetes")
		return nil
	}
	return &model.ServiceName{Namespace: namespace, Name: name}
}

// ofCluster removes from a Service what only files may ask for.
func ofCluster(s *model.Service, found []*manifest.FieldError) (*model.Service, []*manifest.FieldError) {
	if s != nil && s.Extra().EndpointsFrom != nil {
		others := *s.Extras
		others.EndpointsFrom = nil
		s.Extras = &others
		found = append(found, &manifest.FieldError{Field: AnnotationField(AnnotationEndpointsFrom), Warning: true,
			Problem: "has no effect on a Service of a cluster: it is for Services of files"})
	}
	return s, found
}
