package convert

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestCheckAnnotation: 3.30, of a Service in a file; a wrong check leaves the Service as it
// is.
func TestCheckAnnotation(t *testing.T) {
	const field = "metadata.annotations[nftproxy.dev/health-check]"
	run(t, `{metadata: {name: web, namespace: default}, spec: {clusterIP: 10.96.0.1}}`, []conversion{
		{"a word", `metadata: {annotations: {nftproxy.dev/health-check: tcp}}`, simple + "Check tcp every 2s, timeout 1s, rise 2, fall 3", nil},
		{"a mapping", `metadata: {annotations: {nftproxy.dev/health-check: "http: /healthz"}}`, simple + "Check http GET /healthz every 2s, timeout 1s, rise 2, fall 3", nil},
		{"not YAML", `metadata: {annotations: {nftproxy.dev/health-check: "{http"}}`, simple,
			[]string{field + `: "{http" cannot be read: write a type such as tcp, or a mapping such as {http: /healthz, interval: 5s}`}},
		{"a field given twice", `metadata: {annotations: {nftproxy.dev/health-check: "{tcp, port: 1, port: 2}"}}`, simple,
			[]string{field + `: "{tcp, port: 1, port: 2}" cannot be read: write a type such as tcp, or a mapping such as {http: /healthz, interval: 5s}`}},
		{"a wrong field", `metadata: {annotations: {nftproxy.dev/health-check: "{tcp, prot: 1}"}}`, simple,
			[]string{field + `.prot: unknown field (did you mean port?)`}},
		{"too long", fmt.Sprintf(`metadata: {annotations: {nftproxy.dev/health-check: "%s"}}`, strings.Repeat("x", 5000)), simple,
			[]string{field + `: is longer than 4096 bytes: shorten it`}},
		{"no port of the protocol", `{metadata: {annotations: {nftproxy.dev/health-check: http}}, spec: {ports: [{port: 53, protocol: UDP}]}}`,
			simple + "Ports [{Name: Protocol:udp Port:53 NodePort:0}]",
			[]string{field + `: is of type http, which fits none of the ports: name the port of the endpoints to check, such as {http, port: 8080}`}},
		{"nothing to count", `{metadata: {annotations: {nftproxy.dev/health-check: "{passive, port: 53}"}}, spec: {ports: [{port: 53, protocol: UDP}]}}`,
			simple + "Ports [{Name: Protocol:udp Port:53 NodePort:0}]",
			[]string{field + `: is of type passive, which counts connections of TCP, and no port is of TCP: use another type`}},
		{"a port beside the Service's", `{metadata: {annotations: {nftproxy.dev/health-check: "{http, port: 8080}"}}, spec: {ports: [{port: 53, protocol: UDP}]}}`,
			simple + "Ports [{Name: Protocol:udp Port:53 NodePort:0}]\nCheck http GET / on port 8080 every 2s, timeout 1s, rise 2, fall 3", nil},
	}, func(s *corev1.Service) (any, []*manifest.FieldError) { return anyOf(Service(s, "")) })
}

// FuzzParseCheck: any text gives a check within its limits, or findings of one line each;
// and the same again.
func FuzzParseCheck(f *testing.F) {
	for _, text := range []string{"tcp", "{http: /healthz, status: 200-399, body: ok, interval: 2s, timeout: 1s, rise: 2, fall: 3, port: 8080}",
		"{https, status: [200, 204], bodyMatches: ^a+$, verify: true, host: a.b}", "{grpc: a.B, tls: true}", `{udp, sendHex: "00 ff", expectHex: "ff"}`,
		"{udp: echo}", "{passive: 3 of 4, interval: 1s}", "{dns: a.b, query: SOA, rcode: [NOERROR]}", "{exec: [/bin/true, x]}", "{tcp, send: a, expect: b, whenAllFail: reject}", "&a [*a]", "{? [x] : y}", "{<<: {tcp}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{setting.Check.Annotation: text}},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 53, Protocol: "UDP"}}}}
		service, found := Service(s, "")
		again, foundAgain := Service(s, "")
		c := service.Check
		if !reflect.DeepEqual(c, again.Check) || !reflect.DeepEqual(found, foundAgain) || (c == nil) != (len(found) > 0) {
			t.Fatalf("converted twice: %+v %v, then %+v %v", c, found, again.Check, foundAgain)
		}
		for _, e := range found {
			if !sourcetest.IsPlain(e.Error()) || strings.Contains(e.Error(), "\n") {
				t.Errorf("a finding that cannot be printed: %q", e.Error())
			}
		}
		if c != nil {
			checkCheck(t, c)
		}
	})
}

func checkCheck(t *testing.T, c *model.Check) {
	t.Helper()
	switch {
	case c.Interval < healthcheck.MinInterval || c.Interval > healthcheck.MaxInterval || c.Timeout < healthcheck.MinTimeout || c.Timeout > c.Interval:
		t.Errorf("timing %v", c)
	case c.Rise < 1 || c.Fall < 1 || c.Rise > healthcheck.MaxCount || c.Fall > healthcheck.MaxCount:
		t.Errorf("counts %v", c)
	case c.Type < model.CheckTCP || c.Type > model.CheckPassive || c.AllFailing > model.RejectAll:
		t.Errorf("type %v", c)
	case (c.HTTP != nil) != (c.Type == model.CheckHTTP || c.Type == model.CheckHTTPS), (c.Query != "") != (c.Type == model.CheckDNS),
		(len(c.Command) > 0) != (c.Type == model.CheckExec), c.Type == model.CheckUDP && c.Send == "" && !c.Echo:
		t.Errorf("fields %+v", c)
	case (c.Of > 0) != (c.Type == model.CheckPassive), c.Of > 0 && c.Failures < 2, c.Failures > c.Of, c.Of > model.MaxPassiveOf:
		t.Errorf("share %v", c)
	case c.HTTP != nil && (len(c.HTTP.Status) == 0 || !strings.HasPrefix(c.HTTP.Path, "/")):
		t.Errorf("request %+v", c.HTTP)
	}
}
