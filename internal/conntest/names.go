package conntest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/words"
)

const (
	// DNS is the protocol of cases that resolve the name of a Service.
	DNS = "dns"
	// namePatience is how long a name may lack its addresses: servers of the cluster remember for 30 s that a name
	// did not exist.
	namePatience = 40 * time.Second
	namePause    = time.Second
)

// NewName returns the case of a name that a pod on a node resolves to the addresses of a Service of one family. Its
// questions go to the DNS Service of the cluster, through the rules of the node.
func NewName(node, service, name string, addresses []netip.Addr) *Case {
	c := &Case{
		Node: node, Service: service, Kind: "name", Protocol: DNS, Family: model.FamilyOf(addresses[0]).String(), HostName: name,
		From: Pod, Policy: model.PolicyCluster.String(), Words: words.Kubernetes,
	}
	c.Expected.Addresses = slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)
	return c
}

// resolve asks for the name until it has the addresses, or the patience ends.
func (d *Dial) resolve(ctx context.Context) Attempt {
	network := "ip4"
	if d.Addresses[0].Is6() {
		network = "ip6"
	}
	limited, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	for {
		got, err := (&net.Resolver{PreferGo: true}).LookupNetIP(limited, network, d.HostName)
		a := Attempt{Outcome: Answered, Addresses: got}
		failure := new(net.DNSError)
		switch {
		case errors.As(err, &failure) && failure.IsTimeout:
			a.Outcome, a.Error = Silent, err.Error()
		case err != nil:
			a.Outcome, a.Error = Failed, err.Error()
		}
		for i := range a.Addresses {
			a.Addresses[i] = a.Addresses[i].Unmap()
		}
		slices.SortFunc(a.Addresses, netip.Addr.Compare)
		if slices.Equal(a.Addresses, d.Addresses) || !parallel.Wait(limited, namePause) {
			return a
		}
	}
}

// misnamed returns why a name is not resolved as predicted; empty: it is.
func (c *Case) misnamed(a *Attempt) string {
	switch {
	case a.Outcome != Answered:
		return fmt.Sprintf("%s is not resolved: %s", c.HostName, a.Error)
	case !slices.Equal(a.Addresses, c.Expected.Addresses):
		return fmt.Sprintf("%s is resolved to %s", c.HostName, list(a.Addresses))
	}
	return ""
}

func list(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, " and ")
}
