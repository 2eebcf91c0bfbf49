package render_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestBare: the tables for frontends have all that Services share, none of the frontends, and no table of
// a family without one. Those of a Service alone have its frontends.
func TestBare(t *testing.T) {
	router := model.NewRouter()
	router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
	router.SetServices(workload.Services(2, 1))
	some := render.Added(router.Routing())[:1]
	alone := render.Only(router.Base(), some)
	if len(alone.Tables) != 1 || len(alone.Tables[0].Set(nft.ServicesMap).Elements) != 1 {
		t.Errorf("%d tables of a Service alone", len(alone.Tables))
	}
	bare := render.Bare(router.Base(), some)
	if len(bare.Tables) != 1 || len(bare.Tables[0].Set(nft.ServicesMap).Elements) != 0 {
		t.Fatalf("%d tables", len(bare.Tables))
	}
	for _, c := range alone.Tables[0].Chains {
		if has := bare.Tables[0].Chain(c.Name) != nil; has == nft.IsLane(c.Rules) {
			t.Errorf("chain %s is there: %t", c.Name, has)
		}
	}
}
