package nft

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestComment reads back what is written.
func TestComment(t *testing.T) {
	name := model.ServiceName{Namespace: "default", Name: "web"}
	for _, kind := range []model.Kind{model.ClusterIP, model.LoadBalancerIP, model.ExternalIP, model.NodePort} {
		for _, port := range []string{"", "http"} {
			r := &model.Route{Kind: kind, Service: &model.Service{Name: name}, Port: &model.ServicePort{Name: port}}
			if got, of := ParseComment(Comment(r)); got != r.PortName() || of != kind {
				t.Errorf("%q is read as %v, %s", Comment(r), got, of)
			}
		}
	}
	long := &model.Route{Kind: model.NodePort, Service: &model.Service{Name: name}, Port: &model.ServicePort{Name: strings.Repeat("x", 200)}}
	if text := Comment(long); len(text) != MaxComment {
		t.Errorf("%d bytes: %q", len(text), text)
	} else if got, kind := ParseComment(text); got.Service != name || kind != model.NodePort {
		t.Errorf("%q is read as %v, %s", text, got, kind)
	}
}
