package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// proxied reaches agents through the subresource "proxy" of their pods.
type proxied struct {
	http.RoundTripper
	api  rest.Interface
	port uint16
	to   *Agent
}

// To implements [Transport].
func (p proxied) To(a *Agent) (http.RoundTripper, error) {
	p.to = a
	return p, nil
}

// maxStatus limits a message of the API server, in bytes.
const maxStatus = 64 << 10

// RoundTrip implements [http.RoundTripper]. A refusal by the API server is an error, as it is
// not the answer of an agent.
func (p proxied) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	pod := fmt.Sprintf("%s:%d", p.to.Pod, p.port)
	out.URL = p.api.Get().AbsPath("/api/v1/namespaces", p.to.Namespace, "pods", pod, "proxy", r.URL.Path).URL()
	out.URL.RawQuery, out.Host = r.URL.RawQuery, ""
	answer, err := p.RoundTripper.RoundTrip(out)
	if err != nil || answer.StatusCode < http.StatusBadRequest || !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
		return answer, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxStatus))
	_ = answer.Body.Close() // it was read
	if err != nil {
		return nil, err
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return nil, errors.New(status.Message)
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	return answer, nil
}
