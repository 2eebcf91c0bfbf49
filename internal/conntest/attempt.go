package conntest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Outcome is what happened to a connection.
type Outcome string

// Outcomes of connections.
const (
	Answered Outcome = "answered" // a connection of TCP is there, or a datagram had an answer
	Sent     Outcome = "sent"     // an endpoint has got a datagram, and has not answered
	Refused  Outcome = "refused"  // by a reset, or because the port is unreachable
	Silent   Outcome = "no answer"
	Failed   Outcome = "failed" // the client could not send, for example without a route
	// Unsupported is a connection of a protocol that the kernel of the client has no sockets of: SCTP.
	Unsupported Outcome = "not supported"
)

// Attempt is one connection.
type Attempt struct {
	Outcome Outcome `json:"outcome"`
	// Endpoint is where the connection went, as far as connection tracking tells; the zero value:
	// it is not known, or the connection did not leave the rules.
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	// Source is the address that the endpoint sees as the client; the zero Addr: not known.
	Source netip.Addr `json:"source,omitzero"`
	Client netip.Addr `json:"client,omitzero"` // its own address
	// Addresses are what a name is resolved to.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Error     string       `json:"error,omitempty"` // of Failed
}

// Mismatch returns why an attempt is not among the predicted outcomes; empty: it is.
func (c *Case) Mismatch(a *Attempt) string {
	if c.HostName != "" {
		return c.misnamed(a)
	}
	at := ""
	if a.Endpoint.IsValid() {
		at = c.Words.Sprintf(" at endpoint %s", a.Endpoint)
	}
	switch a.Outcome {
	case Failed:
		return "the client could not connect: " + a.Error
	case Refused, Silent:
		verdict := explain.Reject
		if a.Outcome == Silent {
			verdict = explain.Drop
		}
		// Other proxies reject TCP by ICMP as well, which the kernel limits.
		if a.Outcome == Silent && c.Loose && c.Expected.Rejects() {
			return ""
		}
		if !a.Endpoint.IsValid() && slices.ContainsFunc(c.Expected.Outcomes, func(e Expected) bool { return e.Verdict == verdict }) {
			return ""
		}
		return string(a.Outcome) + at
	}
	return c.misdirected(a)
}

// misdirected returns why a connection to an endpoint is not as predicted; empty: it is.
func (c *Case) misdirected(a *Attempt) string {
	forwards := c.Expected.Forwards()
	if len(forwards) == 0 {
		return a.where()
	}
	if !a.Endpoint.IsValid() { // connection tracking knows nothing of it
		return ""
	}
	i := slices.IndexFunc(forwards, func(e Expected) bool {
		return e.Endpoint == a.Endpoint || e.Relay != 0 && e.Relay == a.Endpoint.Port()
	})
	switch {
	case i < 0:
		return a.where() + c.Words.Text(", which is not an endpoint for this client")
	case !a.Source.IsValid() || !a.Client.IsValid():
		return ""
	case c.Loose:
		return ""
	case a.Source != a.Client && !forwards[i].Masqueraded && c.keepsClient():
		return c.Words.Sprintf("endpoint %s sees the client as %s, and its address should be kept", a.Endpoint, a.Source)
	case a.Source == a.Client && forwards[i].Masqueraded && (c.From == Namespace || c.From == Pod): // else it may be the address to masquerade with
		return c.Words.Sprintf("endpoint %s sees the client as %s, which should be masqueraded", a.Endpoint, a.Source)
	}
	return ""
}

// keepsClient reports whether only these rules decide whether an endpoint sees the address of the
// client. Networks of clusters masquerade connections between nodes and pods on other nodes too.
func (c *Case) keepsClient() bool {
	return c.Node == "" || c.From == Pod || c.From == AnotherNode && c.Policy == model.PolicyLocal.String()
}

// where returns what happened and where, such as "answered by 10.1.1.2:8080".
func (a *Attempt) where() string {
	switch {
	case !a.Endpoint.IsValid():
		return string(a.Outcome)
	case a.Outcome == Sent:
		return fmt.Sprintf("sent to %s", a.Endpoint)
	}
	return fmt.Sprintf("%s by %s", a.Outcome, a.Endpoint)
}

// Knowledge is where a client learns which endpoint a connection has reached.
type Knowledge int

// Sources of knowledge.
const (
	Tracked  Knowledge = iota // connection tracking, which needs privileges
	Answers                   // the servers, which are peers
	Outcomes                  // none: only whether there is an answer is known
)

// MaxAnswer limits the answer of a peer, which is one line: the endpoint that the client has reached,
// and the address and port that the endpoint sees as the client.
const MaxAnswer = 256

// ParseAnswer reads the answer of a peer.
func (a *Attempt) ParseAnswer(line string) error {
	endpoint, source, _ := strings.Cut(strings.TrimSpace(line), " ")
	at, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		return fmt.Errorf("another server has answered: %w", err)
	}
	from, err := netip.ParseAddrPort(source)
	a.Endpoint, a.Source = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), from.Addr().Unmap().WithZone("")
	return err
}
