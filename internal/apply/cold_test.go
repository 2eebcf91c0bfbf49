package apply

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// BenchmarkColdStart takes a node from all Services to rules in an empty kernel.
func BenchmarkColdStart(b *testing.B) {
	for _, size := range [][2]int{{1000, 4}, {10000, 4}, {5006, 50}, {44128, 1}, {100000, 4}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			all := workload.Services(size[0], size[1])
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				s := newSandbox(b)
				b.StartTimer()
				router := model.NewRouter()
				router.Configure(model.Config{NodeName: "node-1"}, nil, nil)
				router.SetServices(all)
				_, delta := render.Start(router.Routing())
				if _, err := s.applier.Apply(delta); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
