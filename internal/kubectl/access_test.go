package kubectl_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// TestSilentServer: 18.26. A server that accepts connections and never answers is an error after half a minute, and
// the end of the context is one immediately.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, err := kubectl.REST(&rest.Config{Host: "http://server", Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return client, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		list := func(ctx context.Context) error {
			_, err := kubectl.List(ctx, api, "nodes", kubectl.Query{Path: "/api/v1/nodes"}, func([]struct{}) {})
			return err
		}
		begun := time.Now()
		if err := list(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "list nodes: the API server does not answer: ") {
			t.Errorf("a silent server: %v", err)
		}
		if took := time.Since(begun); took != 30*time.Second {
			t.Errorf("it took %s", took)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		if err := list(ctx); err == nil || strings.Contains(err.Error(), "does not answer") {
			t.Errorf("after an interruption: %v", err)
		}
	})
}
