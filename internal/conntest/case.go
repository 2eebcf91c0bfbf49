package conntest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Origin is where connections come from.
type Origin string

// Origins of connections.
const (
	Host      Origin = "host"      // the machine itself
	Namespace Origin = "namespace" // a client beside the machine

	Pod         Origin = "pod"          // of the node, in a cluster
	AnotherNode Origin = "another node" // a node beside it
	Outside     Origin = "outside"      // where the test was started
)

// Case is one frontend that clients connect to from one origin.
type Case struct {
	// Node is the one whose rules decide; empty: this machine.
	Node     string         `json:"node,omitempty"`
	Service  string         `json:"service"` // namespace/name:port
	Kind     string         `json:"kind"`    // of the frontend: ClusterIP, NodePort...
	Protocol string         `json:"protocol"`
	Family   string         `json:"family"`
	To       netip.AddrPort `json:"to,omitzero"`
	// HostName is a name that is resolved; empty: a connection is opened.
	HostName string     `json:"hostName,omitempty"`
	From     Origin     `json:"from"`
	Client   netip.Addr `json:"client,omitzero"` // zero: not known before it connects
	// Policy is Local if only endpoints of this node may serve the client, else Cluster.
	Policy string `json:"policy"`
	// Affinity reports that a client stays with its endpoint, Sources that the Service limits
	// its clients, Hairpin that the machine of the client is an endpoint.
	Affinity bool `json:"affinity,omitempty"`
	Sources  bool `json:"sources,omitempty"`
	Hairpin  bool `json:"hairpin,omitempty"`

	Expected Prediction `json:"expected"`
	// Words are the words for the Service.
	Words words.Vocabulary `json:"-"`
	// Skip is why the case is not tried; empty: it is.
	Skip string `json:"-"`
	// Loose reports that the prediction does not know which addresses the rules masquerade, as on a
	// node without nftproxy.
	Loose bool `json:"-"`
}

// New returns the case of a frontend, which is tried at an address and port: a frontend may have
// the unspecified address, or a range of ports. [Case.Predict] adds the prediction.
func New(f *served.Frontend, to netip.AddrPort, from Origin) *Case {
	c := &Case{
		Service: f.Port.String(), Kind: f.Kind.String(), Protocol: f.Protocol.String(), Family: model.FamilyOf(to.Addr()).String(), To: to,
		From: from, Policy: model.PolicyCluster.String(), Affinity: f.Affinity > 0, Sources: f.Sources != nil,
	}
	inside := f.Kind == model.ClusterIP && f.InternalPolicy == model.PolicyLocal
	if inside || f.Kind != model.ClusterIP && f.ExternalPolicy == model.PolicyLocal {
		c.Policy = model.PolicyLocal.String()
	}
	return c
}

// Target returns the frontend in words, such as "ClusterIP tcp 10.96.0.10:80".
func (c *Case) Target() string {
	if c.HostName != "" {
		return fmt.Sprintf("%s %s (%s)", c.Kind, c.HostName, c.Family)
	}
	text := fmt.Sprintf("%s %s", c.Protocol, c.To)
	if c.Words != words.Balance { // which has one kind
		text = c.Kind + " " + text
	}
	return text
}

// Features returns what is special about the case, in words; empty: nothing.
func (c *Case) Features() (out []string) {
	for _, f := range []struct {
		has  bool
		name string
	}{
		{c.Policy == model.PolicyLocal.String(), "policy Local"}, {c.Affinity, "affinity"},
		{c.Sources, "limited clients"}, {c.Hairpin, "hairpin"},
	} {
		if f.has {
			out = append(out, f.name)
		}
	}
	return out
}

// Target is a frontend, and the address and port that clients dial.
type Target struct {
	*served.Frontend
	To netip.AddrPort
}

// AddTarget adds a frontend to targets. One with the unspecified address is dialled at the first address
// of its family that serves NodePorts. Listeners on localhost are not frontends of rules.
func AddTarget(all []Target, f *served.Frontend, nodePorts []netip.Addr) []Target {
	at := f.Address
	if at.IsUnspecified() {
		i := slices.IndexFunc(nodePorts, func(a netip.Addr) bool {
			return model.FamilyOf(a) == model.FamilyOf(at) && !a.IsLoopback() && !a.IsLinkLocalUnicast()
		})
		if i < 0 {
			return all
		}
		at = nodePorts[i]
	}
	if f.OnLocalhost() {
		return all
	}
	return append(all, Target{f, netip.AddrPortFrom(at, f.Frontend.Port)})
}
