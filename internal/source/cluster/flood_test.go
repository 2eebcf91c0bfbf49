package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// TestProblemsWithoutEnd: a single object can neither fill the log nor keep the
// proxy busy: only the first problems of an object are logged, and only the
// beginning of a long text. Annotations may have 256 KiB.
func TestProblemsWithoutEnd(t *testing.T) {
	meta := func(annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: annotations,
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}
	}
	many := func(n int) map[string]string {
		out := make(map[string]string)
		for i := range 10000 {
			out[fmt.Sprintf("nftproxy.dev/a%d-%d", n, i)] = ""
		}
		return out
	}
	service := corev1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: 80}}}
	var log bytes.Buffer
	c := New(nil, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for name, add := range map[string]func(n int) error{
		"unknown annotations": func(n int) error {
			return c.services.Add(&corev1.Service{ObjectMeta: meta(many(n)), Spec: service})
		},
		"weights": func(n int) error {
			text := strings.Repeat(fmt.Sprint("x", n, ","), 60000)
			return c.slices.Add(&discoveryv1.EndpointSlice{ObjectMeta: meta(map[string]string{convert.AnnotationWeight: text}), AddressType: "IPv4"})
		},
		"a long scheduler": func(n int) error {
			text := fmt.Sprint(n) + strings.Repeat("\x1b\n", 120000)
			return c.services.Add(&corev1.Service{ObjectMeta: meta(map[string]string{setting.Scheduler.Annotation: text}), Spec: service})
		},
	} {
		for n := range 2 {
			log.Reset()
			start := time.Now()
			if err := add(n); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(t.Output(), "%s: %d bytes of log in %s\n", name, log.Len(), time.Since(start))
			if log.Len() == 0 || log.Len() > 10000 {
				t.Errorf("%s: version %d makes %d bytes of log", name, n, log.Len())
			}
			if lines := strings.Count(log.String(), "\n"); lines > manifest.MaxShown+1 {
				t.Errorf("%s: version %d makes %d lines", name, n, lines)
			}
		}
	}
}

// TestManyWrongObjects: 13.28. A user with many wrong Services, altered again and again,
// cannot fill the log of every node.
func TestManyWrongObjects(t *testing.T) {
	var log bytes.Buffer
	c := New(nil, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for version := range 20 {
		for i := range 500 {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", i),
				Annotations: map[string]string{setting.Scheduler.Annotation: fmt.Sprint("wrong-", version)}},
				Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: 80}}}}
			if err := c.services.Add(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := strings.Count(log.String(), "\n")
	fmt.Fprintf(t.Output(), "%d lines for 10,000 versions\n", lines)
	if lines < budget.ObjectLines || lines > budget.ObjectLines+20 {
		t.Errorf("%d lines for 10,000 versions", lines)
	}
	if problems := len(c.services.found); problems != 500 {
		t.Errorf("status knows the problems of %d objects", problems)
	}
}
