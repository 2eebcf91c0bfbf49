package scale

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// TestDropManagedFields: an API server that does not know the parameter that leaves
// out managedFields answers as without it, so that clients may always send it. The
// log has the share of managedFields.
func TestDropManagedFields(t *testing.T) {
	c := testbed.NewCluster(t, 1, testbed.WithoutOwnEndpoint)
	o := fill(c, 2)
	transport, err := rest.TransportFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	list := func(accept string) []byte {
		request, err := http.NewRequest(http.MethodGet, "https://"+testbed.APIAddress+"/apis/discovery.k8s.io/v1/endpointslices", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", accept)
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", accept, answer.Status, err)
		}
		return body
	}
	const protobuf, drop, json = "application/vnd.kubernetes.protobuf", ";drop=metadata.managedFields", ",application/json"
	all := list(protobuf + json)
	if !bytes.Contains(all, []byte("f:endpoints")) {
		t.Error("the objects have no managedFields")
	}
	if got := list(protobuf + drop + "," + protobuf + json); !bytes.Equal(got, all) {
		t.Errorf("with the parameter the answer has %d bytes, without it %d", len(got), len(all))
	}
	for _, s := range []*discoveryv1.EndpointSlice{o.small, o.rollout} {
		before := s.Size()
		s.ManagedFields = nil
		fmt.Fprintf(t.Output(), "slice of %d endpoints: %d bytes in protobuf, %d without managedFields\n", len(s.Endpoints), before, s.Size())
	}
	service, err := o.api.CoreV1().Services(testbed.Namespace).Get(t.Context(), testbed.LoadName(0), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := service.Size()
	service.ManagedFields = nil
	fmt.Fprintf(t.Output(), "Service: %d bytes in protobuf, %d without managedFields\n", before, service.Size())
}
