package model

import (
	"net/netip"
	"slices"
	"time"
)

// StartParts is how many parts a weight has while its endpoint starts slowly (3.68). An endpoint
// begins with one of them, and gets another one in each of StartParts-1 steps of equal length.
const StartParts = 10

type Starting struct {
	Endpoint netip.AddrPort // with port 0 for all ports of a range
	Part     uint8          // of its weight, from 1 to StartParts-1
	Full     time.Time      // when it has its whole weight
}

// start returns the entry of an endpoint, or nil. One of a range may have the entry for all
// ports: that is never newer than the entry of a port.
func (x *Extras) start(e Endpoint) *Starting {
	for _, a := range [...]netip.AddrPort{e.Address(), netip.AddrPortFrom(e.Host.Address, 0)} {
		i, found := slices.BinarySearchFunc(x.Starting, a, func(s Starting, a netip.AddrPort) int { return s.Endpoint.Compare(a) })
		if found {
			return &x.Starting[i]
		}
	}
	return nil
}

func (x *Extras) weightPart(e Endpoint) uint8 {
	if s := x.start(e); s != nil {
		return s.Part
	}
	return StartParts
}

// setParts gives the endpoints of choices their parts. If all have the same one, none has an
// effect, and the rules are as without: a server that is alone takes all connections.
func (x *Extras) setParts(choices ...*[]Endpoint) {
	if len(x.Starting) == 0 {
		return
	}
	first, differ := uint8(0), false
	for _, c := range choices {
		for _, e := range *c {
			part := x.weightPart(e)
			differ = differ || first != 0 && part != first
			first = part
		}
	}
	if !differ {
		return
	}
	for _, c := range choices {
		*c = slices.Clone(*c)
		for i := range *c {
			(*c)[i].Part = x.weightPart((*c)[i])
		}
	}
}

// Start returns the entry of an endpoint of a choice whose share is smaller because it starts
// slowly, or nil.
func (s *Service) Start(e Endpoint) *Starting {
	if e.Part == 0 || e.Part == StartParts {
		return nil
	}
	return s.Extra().start(e)
}

// WithStarting returns a state whose Service has endpoints that start slowly, sorted by address.
func (s ServiceState) WithStarting(all []Starting) ServiceState {
	s.Service = s.Service.changeExtras(func(x *Extras) { x.Starting = all })
	return s
}
