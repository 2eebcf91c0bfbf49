package cluster

import (
	"log/slog"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestClusterLookup: a cluster returns the Services that it has.
func TestClusterLookup(t *testing.T) {
	c := New(&Client{}, Config{Log: slog.New(slog.DiscardHandler)})
	for _, name := range []string{"web", "dns"} {
		n := model.ServiceName{Namespace: "a", Name: name}
		c.services.objects[cache.ObjectName(n)] = &model.Service{Name: n}
	}
	c.synced = true
	sourcetest.CheckLookup(t, c)
}
