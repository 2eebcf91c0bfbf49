package cluster

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestDeferred: 14.20, a kubeconfig may appear after the start.
func TestDeferred(t *testing.T) {
	path := t.TempDir() + "/kubeconfig"
	a := Access{Dialer: NewDialer()}
	a.Kubeconfig = path
	var log bytes.Buffer
	c := a.Deferred(slog.New(slog.NewTextHandler(&log, nil)))
	list := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.Services.List(ctx, metav1.ListOptions{}, func(runtime.Object) error { return nil })
		return err
	}
	if err := list(); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("without a kubeconfig: %v", err)
	}
	if _, err := c.Slices.Watch(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a watch without a kubeconfig")
	}
	dialed := errors.New("dialed")
	check(t, os.WriteFile(path, []byte("{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'http://192.0.2.100:6443'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"), 0o600))
	fakeNetworkOf(a.Dialer).dial = dialerOf(func(string) error { return dialed })
	if err := list(); !errors.Is(err, dialed) {
		t.Errorf("with a kubeconfig: %v", err)
	}
}
