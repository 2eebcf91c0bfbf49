package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nftproxy/nftproxy/internal/model"
)

// numbered returns a snapshot with Services shop/a, shop/b and so on, each with one
// port for each character in the text of its name.
func numbered(services map[string]string) *model.Snapshot {
	s := &model.Snapshot{}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		svc := &model.Service{
			Name:       model.ServiceName{Namespace: "shop", Name: name},
			ClusterIPs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.96.0.%d", name[0]))},
		}
		for _, port := range services[name] {
			svc.Ports = append(svc.Ports, model.ServicePort{Name: string(port), Port: uint16(port)})
		}
		s.Services = append(s.Services, svc)
	}
	return s
}

// TestServicesOfSync: 13.24, the log names the Services that a sync changes, and
// observers get all of them.
func TestServicesOfSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.load = func() (*model.Snapshot, error) { return numbered(map[string]string{"a": "1", "b": "1", "c": "1"}), nil }
		var got []model.ServiceName
		f.observe = append(f.observe, func(s *Sync) { got = s.Services() })
		f.start(t)
		if strings.Contains(f.log.String(), "Services=") {
			t.Errorf("the first sync names Services: %s", f.log)
		}
		for _, c := range []struct {
			now  map[string]string
			want string // of the log
			all  string
		}{
			{map[string]string{"a": "1", "b": "12", "c": "1"}, "changedServices=shop/b services=3", "shop/b"},
			{map[string]string{"a": "1", "b": "1", "d": "1"}, "addedServices=shop/d changedServices=shop/b removedServices=shop/c services=3", "shop/b shop/c shop/d"},
			{map[string]string{"b": "1"}, `removedServices="shop/a shop/d" services=1`, "shop/a shop/d"},
			{map[string]string{"b": "1", "e": "1", "f": "1", "g": "1", "h": "1", "i": "1"}, `addedServices="shop/e shop/f shop/g and 2 more" services=6`,
				"shop/e shop/f shop/g shop/h shop/i"},
		} {
			f.log.Reset()
			f.load = func() (*model.Snapshot, error) { return numbered(c.now), nil }
			f.agent.Changed()
			synctest.Wait()
			if !strings.Contains(f.log.String(), "rules applied\" "+c.want+" ") {
				t.Errorf("%v: no %s in %s", c.now, c.want, f.log)
			}
			if all := strings.Trim(fmt.Sprint(got), "[]"); all != c.all {
				t.Errorf("%v: observers got %s, want %s", c.now, all, c.all)
			}
		}
	})
}

// TestServicesOfManyRoutes: the log line of a large sync does not take longer.
func TestServicesOfManyRoutes(t *testing.T) {
	s := &Sync{Routes: make([]model.RouteChange, maxNamed+1)}
	for i := range s.Routes {
		svc := &model.Service{Name: named(i)}
		s.Routes[i].New = &model.Route{Service: svc, Port: new(model.ServicePort), Choice: new(model.Choice)}
	}
	if names := s.logAttributes(); names != nil || s.services != nil {
		t.Errorf("names %v", names)
	}
	if n := len(s.Services()); n != len(s.Routes) {
		t.Errorf("%d Services", n)
	}
}

// TestServicesThatLoseAFrontend: a Service that keeps others has changed.
func TestServicesThatLoseAFrontend(t *testing.T) {
	svc := &model.Service{Name: named(1)}
	nodePort := &model.Route{Kind: model.NodePort, Service: svc, Port: new(model.ServicePort), Choice: new(model.Choice)}
	for name, c := range map[string]model.RouteChange{"comes": {New: nodePort}, "goes": {Old: nodePort}} {
		s := &Sync{Routes: []model.RouteChange{c}}
		if got := fmt.Sprint(s.logAttributes()); got != "[changedServices default/service-1]" {
			t.Errorf("a NodePort that %s: %s", name, got)
		}
	}
	s := &Sync{Routes: []model.RouteChange{{Old: nodePort, New: nodePort}}}
	if got := s.Services(); len(got) != 0 {
		t.Errorf("no difference: %v", got)
	}
}
