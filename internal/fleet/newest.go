package fleet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// Newest is the object of a kind that changed last. The names of the JSON fields are stable.
type Newest struct {
	ResourceVersion string    `json:"resourceVersion"`
	Object          string    `json:"object"`           // namespace/name
	Changed         time.Time `json:"changed,omitzero"` // by the field managers; not known: zero
}

// Newest returns the objects that changed last and that agents read, by the names of their kinds
// in URLs. Deleted objects are not known.
func (f *Fleet) Newest(ctx context.Context) (map[string]Newest, error) {
	out := make(map[string]Newest)
	for kind, q := range map[string]kubectl.Query{
		"services": {Path: "/api/v1/services", Format: kubectl.Metadata, Options: map[string]string{
			"labelSelector": "!" + convert.LabelProxyName, "fieldSelector": "spec.clusterIP!=" + corev1.ClusterIPNone}},
		"endpointslices": {Path: "/apis/discovery.k8s.io/v1/endpointslices", Format: kubectl.Metadata, Options: map[string]string{
			"labelSelector": "!" + corev1.IsHeadlessService}},
	} {
		_, err := kubectl.List(ctx, f.API, kind, q, func(page []metav1.PartialObjectMetadata) {
			for i := range page {
				if o := &page[i]; older(out[kind].ResourceVersion, o.ResourceVersion) {
					out[kind] = Newest{o.ResourceVersion, o.Namespace + "/" + o.Name, changed(o)}
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func changed(o *metav1.PartialObjectMetadata) time.Time {
	at := o.CreationTimestamp.Time
	for _, f := range o.ManagedFields {
		if f.Time != nil && at.Before(f.Time.Time) {
			at = f.Time.Time
		}
	}
	return at
}

// older reports whether a resourceVersion is older than another one. An empty one is older than
// all others; one that is no number is not comparable.
func older(a, b string) bool {
	if a == "" {
		return b != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Lags returns the kind of which an agent has not seen the newest object; empty: it has seen all,
// or does not say.
func Lags(s *api.Status, newest map[string]Newest) string {
	for _, kind := range []string{"endpointslices", "services"} {
		if n, known := newest[kind]; known && s.Seen[kind] != "" && older(s.Seen[kind], n.ResourceVersion) {
			return kind
		}
	}
	return ""
}
