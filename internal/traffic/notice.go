package traffic

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Words has the words for Services.
type Words interface {
	// IsBalance reports whether a Service comes from a Balance.
	IsBalance(model.ServiceName) bool
	// Words are the words for all Services together.
	Words() words.Vocabulary
}

// Notice returns the problem of endpoints that do not answer: of their Service, or of the
// endpoint if it serves several ones. Of connections that are dropped before they reach one, filters returns what may
// do that in an IP family; nil: not known.
func (f *Failure) Notice(of Words, filters func(model.Family) []string) model.Notice {
	problem := f.ofEndpoints
	if f.Outcome == conntrack.Dropped {
		problem = f.ofDropped
	}
	p := problem(of, filters)
	if f.OneClient() {
		p.Message = oneClient + p.Message
	}
	return p
}

// oneClient begins the problem of connections that fail for one client alone.
const oneClient = "only one client fails: "

// ofEndpoints returns the problem of endpoints.
func (f *Failure) ofEndpoints(of Words, _ func(model.Family) []string) model.Notice {
	in := of.Words()
	who := in.Count(len(f.Endpoints), "endpoint") + ", " + f.Endpoints[0].String() + " and others,"
	if len(f.Endpoints) == 1 {
		who = f.Endpoints[0].String()
	}
	share := f.shareText()
	p := model.Notice{Object: model.Object{Kind: in.Text("Endpoint"), Name: f.Endpoints[0].Addr().String()}, Reason: model.ConnectionsRefused, Message: fmt.Sprintf("%s refused %s", who, share)}
	if f.Outcome == conntrack.Unanswered {
		p.Reason, p.Message = model.ConnectionsUnanswered, fmt.Sprintf("%s did not answer %s", who, share)
	}
	services := servicesOf(f.Ports)
	if len(services) > 1 {
		p.Message += fmt.Sprintf(", to %s and %d more", services[0].ObjectAs(of.IsBalance(services[0])), len(services)-1)
		return p
	}
	p.Object = services[0].ObjectAs(of.IsBalance(services[0]))
	if len(f.Ports) == 1 {
		p.Message += f.Ports[0].Suffix()
	}
	return p
}

func (f *Failure) shareText() string {
	return fmt.Sprintf("%d of %d sampled connections in the last minute", f.Failed, f.Samples)
}

// ofDropped returns the problem of a service port whose connections are lost on this machine.
func (f *Failure) ofDropped(of Words, filters func(model.Family) []string) model.Notice {
	port := f.Ports[0]
	message := f.shareText()
	if len(f.Families) == 1 {
		message += " over " + f.Families[0].String()
	}
	message += " were lost on this machine" + port.Suffix()
	var may []string
	for _, family := range f.Families {
		if filters == nil {
			break
		}
		for _, text := range filters(family) {
			if !slices.Contains(may, text) {
				may = append(may, text)
			}
		}
	}
	if len(may) > 0 {
		message += "; " + strings.Join(may[:min(len(may), mostFilters)], ", or ") + " may drop them"
	}
	return model.Notice{Object: port.Service.ObjectAs(of.IsBalance(port.Service)), Reason: model.ConnectionsDropped, Message: message + ": nftproxy trace " + port.Service.String()}
}

// mostFilters is how many filters a problem names.
const mostFilters = 3

// servicesOf returns the Services of sorted service ports.
func servicesOf(ports []model.PortName) (out []model.ServiceName) {
	for _, p := range ports {
		out = append(out, p.Service)
	}
	return slices.Compact(out)
}
