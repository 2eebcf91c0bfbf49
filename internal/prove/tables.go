package prove

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// settleTables finds the Services whose tables have no room in the budgets, so that they have the
// scheduler source-hash (3.60).
func (w *World) settleTables() {
	w.withoutTables = make(map[*model.Service]bool)
	oldest := slices.SortedFunc(slices.Values(w.snapshot.Services), func(a, b *model.Service) int {
		return cmp.Or(cmp.Compare(age(a), age(b)), cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name))
	})
	left := budget.MaglevSlotsNode
	for _, s := range oldest {
		n := w.tables(s)
		if n == 0 {
			continue
		}
		asked := uint32(model.DefaultMaglevSize)
		if s.Extras != nil && s.Extras.MaglevSize != 0 {
			asked = s.Extras.MaglevSize
		}
		has := 0
		for _, size := range model.MaglevSizes {
			if size <= asked && n*int(size) <= min(left, budget.MaglevSlots) {
				has = int(size)
			}
		}
		left -= n * has
		w.withoutTables[s] = has == 0
	}
}

// tables returns how many tables the frontends of a Service can have on any node.
func (w *World) tables(s *model.Service) (n int) {
	scheduler := s.Scheduler
	if scheduler == model.DefaultScheduler {
		scheduler = w.config.Scheduler
	}
	affinity := s.AffinityTimeout > 0
	if !isMaglev(scheduler) || affinity && s.Balance && hasRange(s) || s.Extras != nil && s.Extras.Relay != model.NoRelay {
		return 0
	}
	ports, twice := len(s.Ports), 1
	if s.Extras != nil {
		for _, p := range s.Extras.Ranges {
			if p.Last == 0 || !affinity { // 1.56
				ports++
			}
		}
	}
	if s.ExternalPolicy == model.PolicyLocal {
		twice = 2
	}
	for _, f := range model.Families {
		addresses, served := addressesIn(s, f)
		for _, kind := range addresses {
			if kind == model.ClusterIP {
				n += ports
			} else {
				n += ports * twice
			}
		}
		for i := range s.Ports {
			if served && s.Ports[i].NodePort != 0 && !s.NoClusterIP {
				n += twice
			}
		}
	}
	return n
}

func isMaglev(s model.Scheduler) bool { return s == model.Maglev || s == model.MaglevPort }

// addressesIn returns the addresses of a Service in a family, and whether it is served there
// (1.15, 1.40).
func addressesIn(s *model.Service, f model.Family) (out map[netip.Addr]model.Kind, served bool) {
	external := model.External{}
	if s.External != nil {
		external = *s.External
	}
	clusterIPs, balancers := addressesOf(s.ClusterIPs, f), addressesOf(external.LoadBalancerIPs, f)
	if len(clusterIPs) == 0 && (!s.NoClusterIP || len(balancers) == 0) {
		return nil, false
	}
	out = make(map[netip.Addr]model.Kind)
	for _, a := range addressesOf(external.ExternalIPs, f) {
		if !s.NoClusterIP {
			out[a] = model.ExternalIP
		}
	}
	for _, a := range balancers {
		out[a] = model.LoadBalancerIP
	}
	if len(clusterIPs) > 0 {
		out[clusterIPs[0]] = model.ClusterIP
	}
	return out, true
}
