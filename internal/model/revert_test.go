package model_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestRevert: a routing without the last changes is the one before them.
func TestRevert(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	router := model.NewRouter()
	router.Configure(workload.FullConfig(), workload.FullNodes(), workload.FullCIDRs())
	for step := range 100 {
		before := router.Routing()
		states := make(map[model.ServiceName]model.ServiceState)
		for range 1 + r.IntN(3) {
			i := byte(r.IntN(6))
			s := workload.Full(fmt.Sprintf("service-%d", i), 1+byte(r.IntN(4)), r.IntN(workload.FullVariants)) // some claim the same addresses
			name := s.Service.Name
			if r.IntN(4) == 0 {
				s = model.ServiceState{}
			}
			states[name] = s
		}
		changes := router.SetServices(states)
		after := router.Routing()
		after.Revert(changes)
		if !reflect.DeepEqual(before.Routes, after.Routes) || !reflect.DeepEqual(before.Echoes, after.Echoes) {
			t.Fatalf("step %d: %d routes and %d echoes, before %d and %d", step, len(after.Routes), len(after.Echoes), len(before.Routes), len(before.Echoes))
		}
	}
}
