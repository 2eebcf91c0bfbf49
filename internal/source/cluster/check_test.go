package cluster

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestCheckFromServer: 3.29, 3.31, Services of an API server run no programs, have no
// check unless that is admitted, nor with a selector, and a wrong check does no harm.
func TestCheckFromServer(t *testing.T) {
	for _, x := range []struct {
		text, want string
		off        bool
		selector   map[string]string
	}{
		{text: `{exec: /bin/true}`, want: "exec is accepted from files only"},
		{text: `tpc`, want: "did you mean tcp?"},
		{text: `tcp`},
		{text: `tcp`, off: true, want: "has no effect on a Service of an API server unless nftproxy run has --health-checks"},
		{text: `tcp`, selector: map[string]string{"app": "web"}, want: "has no effect on a Service with a selector"},
	} {
		text, want := x.text, x.want
		var log strings.Builder
		c := New(nil, Config{HealthChecks: !x.off, Log: slog.New(slog.NewTextHandler(&log, nil))})
		err := c.services.Add(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: map[string]string{setting.Check.Annotation: text}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Selector: x.selector, Ports: []corev1.ServicePort{{Port: 80}}},
		})
		all := c.services.values()
		if err != nil || len(all) != 1 || (all[0].Check != nil) != (want == "") || !strings.Contains(log.String(), want) {
			t.Errorf("%s: %+v, log %q", text, all, log.String())
		}
	}
}

// TestRefusedCheckIsNotRead: 3.29, a check that an API server's Services may not have is not
// even read: its text makes no findings.
func TestRefusedCheckIsNotRead(t *testing.T) {
	for _, c := range []struct {
		config   Config
		selector map[string]string
		want     string
	}{
		{Config{}, nil, "unless nftproxy run has --health-checks"},
		{Config{HealthChecks: true}, map[string]string{"app": "web"}, "on a Service with a selector"},
	} {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{setting.Check.Annotation: "{tcp, prot: 80"}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Selector: c.selector, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		service, found := c.config.convertService(s)
		if service == nil || service.Check != nil || len(found) != 1 || !found[0].Warning || !strings.Contains(found[0].Error(), c.want) {
			t.Errorf("%+v, findings %v", service, sourcetest.Texts(found))
		}
	}
}
