package main

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// failingOf returns the failing health checks of a basis.
func failingOf(b *api.Basis) (out []feature.Failing) {
	for _, f := range b.Failing {
		of := model.ServiceName{Namespace: f.Namespace, Name: f.Service}
		out = append(out, feature.Failing{Service: of, Endpoint: f.Endpoint, Protocol: f.Protocol, Check: f.Check})
	}
	return out
}

// startingOf returns the endpoints of a basis that start slowly.
func startingOf(b *api.Basis) (out []feature.Starting) {
	for _, e := range b.Starting {
		of := model.ServiceName{Namespace: e.Namespace, Name: e.Service}
		out = append(out, feature.Starting{Service: of, Starting: model.Starting{Endpoint: e.Endpoint, Part: e.Part}})
	}
	return out
}

// resolvedOf returns the names of servers of a basis, with their addresses.
func resolvedOf(b *api.Basis) (out []feature.Resolved) {
	for _, n := range b.Names {
		r := feature.Resolved{Service: model.ServiceName{Namespace: n.Namespace, Name: n.Service}, Name: n.Name}
		for _, a := range n.Addresses {
			r.Addresses = append(r.Addresses, model.NamedAddress{Address: a.Address, Port: a.Port, Weight: a.Weight, Priority: a.Priority})
		}
		out = append(out, r)
	}
	return out
}
