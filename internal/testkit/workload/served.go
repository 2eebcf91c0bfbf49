package workload

import (
	"fmt"
	"reflect"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/served"
)

// CheckReading returns an error unless reading the rules gives the same as their routes,
// except for facts that rules leave open.
func CheckReading(r *model.Routing, rs *nft.Ruleset) error {
	n, want := 0, 0
	tables := make(map[model.Family]*served.Table)
	for _, f := range model.Families {
		tables[f] = served.Read(rs.Table(f))
		for range tables[f].All() {
			n++
		}
	}
	for i := range r.Routes {
		route := &r.Routes[i]
		if route.Frontend.OnLocalhost() { // a listener serves it
			continue
		}
		want++
		read := tables[model.FamilyOf(route.Frontend.Address)].Frontend(route.Frontend)
		if read == nil {
			return fmt.Errorf("%s is not read", route.Frontend)
		}
		if want := served.Of(route, r.Scheduler).Without(read.Unknown); !SameFrontend(*read, *want) {
			return fmt.Errorf("%s is read as\n%+v %+v\nwant\n%+v %+v", route.Frontend, read, read.Sources, want, want.Sources)
		}
	}
	if n != want {
		return fmt.Errorf("%d frontends are read, want %d", n, want)
	}
	return nil
}

// SameFrontend reports whether a node does the same for both frontends, and the same is unknown.
func SameFrontend(a, b served.Frontend) bool {
	same := a.Sources.Equal(b.Sources)
	a.Sources, b.Sources = nil, nil
	return same && reflect.DeepEqual(a, b)
}
