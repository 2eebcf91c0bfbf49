package main

import (
	"math/rand/v2"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// changer makes changes of a world, always the same ones.
type changer struct {
	*world
	random *rand.Rand
}

func newChanger(w *world) *changer {
	return &changer{w, rand.New(rand.NewPCG(7, 0))}
}

// choose returns n services that have an endpoint on another node. A change of
// it concerns nothing but the service, so each costs the same.
func (c *changer) choose(n int) []int {
	var out []int
	for _, i := range c.random.Perm(c.Services) {
		if len(out) < n && remote(c.services[serviceName(i)]) >= 0 {
			out = append(out, i)
		}
	}
	return out
}

// replaceEndpoint gives service i another endpoint in the place of one.
func (c *changer) replaceEndpoint(i int) *model.Update {
	s := c.services[serviceName(i)]
	all := slices.Clone(hosts(s))
	j := remote(s)
	all[j].Address = c.newHost(j).Address
	return c.set(i, withHosts(s, all))
}

// scale gives service i one endpoint more, and then takes it away again.
func (c *changer) scale(i int) (up, down *model.Update) {
	s := c.services[serviceName(i)]
	up = c.set(i, withHosts(s, append(slices.Clone(hosts(s)), c.newHost(2))))
	return up, c.set(i, s)
}

// replaceService deletes service i, and adds it again.
func (c *changer) replaceService(i int) (del, add *model.Update) {
	s := c.services[serviceName(i)]
	return c.set(i, model.ServiceState{}), c.set(i, s)
}

// randomChange changes something about some service.
func (c *changer) randomChange() *model.Update {
	i := c.random.IntN(c.Services)
	s, there := c.services[serviceName(i)]
	if !there {
		return c.set(i, c.newState(i))
	}
	all := slices.Clone(hosts(s))
	switch n := c.random.IntN(100); {
	case n < 5:
		return c.set(i, model.ServiceState{})
	case n < 10:
		return c.set(i, c.exposeOrHide(i, s))
	case n < 15 && len(all) > 1:
		all = nil // scaled to zero
	case n < 30:
		all = append(all, c.newHost(c.random.IntN(nodes)))
	case n < 45 && len(all) > 0:
		j := c.random.IntN(len(all))
		all = slices.Delete(all, j, j+1)
	case n < 60 && len(all) > 0:
		j := c.random.IntN(len(all))
		all[j].Ready = !all[j].Ready
		all[j].Serving = all[j].Ready
	case len(all) > 0:
		all[c.random.IntN(len(all))] = c.newHost(c.random.IntN(nodes))
	default:
		all = append(all, c.newHost(c.random.IntN(nodes)))
	}
	return c.set(i, withHosts(s, all))
}

// exposeOrHide makes a service a load balancer, or takes back that it is one.
func (c *changer) exposeOrHide(i int, s model.ServiceState) model.ServiceState {
	other := *s.Service
	other.Ports = slices.Clone(other.Ports)
	if other.External != nil {
		other.External, other.Ports[0].NodePort = nil, 0
	} else {
		expose(&other, i)
	}
	return model.ServiceState{Service: &other, Slices: s.Slices}
}
