package report

import (
	"fmt"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/internal/words"
)

// OfFailure returns the problem of endpoints that do not answer: of their Service, or of the
// endpoint if it serves several ones.
func OfFailure(f *traffic.Failure, of Words) api.Problem {
	in := words.Kubernetes
	if of != nil {
		in = of.Words()
	}
	who := in.Count(len(f.Endpoints), "endpoint") + ", " + f.Endpoints[0].String() + " and others,"
	if len(f.Endpoints) == 1 {
		who = f.Endpoints[0].String()
	}
	share := fmt.Sprintf("%d of %d sampled connections in the last minute", f.Failed, f.Samples)
	p := api.Problem{Object: in.Text("Endpoint ") + f.Endpoints[0].Addr().String(), Reason: api.ConnectionsRefused, Message: fmt.Sprintf("%s refused %s", who, share)}
	if f.Outcome == conntrack.Unanswered {
		p.Reason, p.Message = api.ConnectionsUnanswered, fmt.Sprintf("%s did not answer %s", who, share)
	}
	services := servicesOf(f.Ports)
	if len(services) > 1 {
		p.Message += fmt.Sprintf(", to %s and %d more", objectOf(of, services[0]), len(services)-1)
		return p
	}
	p.Object = objectOf(of, services[0])
	if len(f.Ports) == 1 {
		p.Message += portText(f.Ports[0].Port)
	}
	return p
}

// servicesOf returns the Services of sorted service ports.
func servicesOf(ports []model.PortName) (out []model.ServiceName) {
	for _, p := range ports {
		if len(out) == 0 || out[len(out)-1] != p.Service {
			out = append(out, p.Service)
		}
	}
	return out
}
