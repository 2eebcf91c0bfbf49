package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Disposition is how a connection is treated.
type Disposition uint8

const (
	NotOurs Disposition = iota // not changed by the rules
	Forward                    // to an endpoint
	Reject                     // answered with a TCP reset or port unreachable
	Drop                       // not answered
	Unknown                    // undecidable from the rules and the packet
	Answer                     // by this node in place of the Service: an echo request
)

var dispositions = [...]string{"not ours", "forward", "reject", "drop", "unknown", "answer"}

func (d Disposition) String() string { return dispositions[d] }

// MarshalText implements [encoding.TextMarshaler].
func (d Disposition) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Disposition) UnmarshalText(text []byte) error {
	i := slices.Index(dispositions[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is not a disposition", text)
	}
	*d = Disposition(i)
	return nil
}

// Result is the answer for a packet.
type Result struct {
	Packet  Packet // with its source and FromNode filled in
	Service string // service port of the frontend; empty: none
	// Words are the words for the Service, or for all that the rules serve.
	Words words.Vocabulary
	Kind  string // of the frontend: ClusterIP, NodePort...
	// Frontend is the one that serves the packet, which may be a range of ports; the zero
	// value: none does.
	Frontend model.Frontend
	// Outcomes holds at least one. They differ in the endpoint or the disposition,
	// and their shares add up to 1.
	Outcomes []Outcome
	Notes    []string // assumptions
	// Asked is the packet to a listener on localhost, where Packet is the one that this
	// sends; nil: there is no listener.
	Asked *Packet
	// LeftOut and Conflicts come from [Result.AddObjects].
	LeftOut   []Omission
	Conflicts []Claim
}

// Outcome is one possible result for a packet.
type Outcome struct {
	Ending
	Share float64  `json:"share"`           // of all connections with such a packet
	Slots []uint32 `json:"slots,omitempty"` // of the endpoint; none: there was no choice
	// Name is the name of DNS that has the address of the endpoint; empty: none, or it is not known.
	Name string `json:"name,omitempty"`
	// Scheduler is the name of the one that chose the slot, if there are several, and
	// TableSize the number of slots of maglev and maglev-port.
	Scheduler string `json:"scheduler,omitempty"`
	TableSize uint32 `json:"tableSize,omitempty"`
	Path      []Step `json:"path"`
	// Limits are the admitted quantities, for example "20 connections per client": a packet
	// that exceeds one is dropped.
	Limits []string `json:"limits,omitempty"`
	lane   string   // the chain that chose the slot
	// guessed reports that a rule depends on the source, which is not known.
	guessed bool
	// portless reports that the packet has no port.
	portless bool
	// echo reports that the packet is an echo request, and that the node answers requests to
	// Services with usable endpoints.
	echo bool
}

// Ending is how an outcome ends. It is comparable.
type Ending struct {
	Verdict  Disposition    `json:"verdict"`
	Reason   string         `json:"reason,omitempty"`  // of everything but Forward
	List     string         `json:"list,omitempty"`    // field of the Service with the list of clients that drops it, if known
	Endpoint netip.AddrPort `json:"endpoint,omitzero"` // of Forward
	Of       int            `json:"ofSlots,omitempty"` // slots to choose from
	// Relay is the port at which nftproxy run accepts the connection, and makes another one to
	// the endpoint; zero: rules send it there.
	Relay uint16 `json:"relay,omitempty"`
	// Masquerade is the rule that rewrites the source; empty: none does.
	Masquerade string        `json:"masquerade,omitempty"`
	Remember   time.Duration `json:"-"`                  // how long the client stays bound; zero: no affinity
	Together   bool          `json:"together,omitempty"` // for all ports of the Balance
	Bound      bool          `json:"bound,omitempty"`    // the client was bound to the endpoint before
	// Stale reports that the endpoint of the client's binding has left the Service:
	// the client is released.
	Stale bool `json:"-"`
}

// Step is an evaluated rule.
type Step struct {
	Chain   string   `json:"chain"`
	Rule    string   `json:"rule"`
	Matched bool     `json:"matched"`
	Details []string `json:"details,omitempty"` // the elements found, or what did not match
	sets    []string // in which an element was found
	// otherProtocol reports that the rule is for another protocol.
	otherProtocol bool
}

func (s Step) isSame(o Step) bool {
	return s.Chain == o.Chain && s.Rule == o.Rule && s.Matched == o.Matched && slices.Equal(s.Details, o.Details)
}

// Verdict returns the disposition of all outcomes, if there is one.
func (r *Result) Verdict() (d Disposition, ok bool) {
	first := r.Outcomes[0].Verdict
	if slices.ContainsFunc(r.Outcomes, func(o Outcome) bool { return o.Verdict != first }) {
		return Unknown, false
	}
	return first, true
}

// Speak sets the words, and says what is noted so far in them. It is called before anything is
// noted that has names or values.
func (r *Result) Speak(in words.Vocabulary) {
	r.Words = in
	for i, n := range r.Notes {
		r.Notes[i] = in.Text(n)
	}
}

func (r *Result) setName(n served.Named) {
	r.Service, r.Kind, r.Frontend = n.Port.String(), n.Kind.String(), n.Frontend
}

// nameIn does so from the rules. Of an echo request it is the Service for which the node
// answers.
func (r *Result) nameIn(t *nft.Table) {
	if n, ok := served.Find(t, r.Packet.Frontend()); ok {
		r.setName(n)
		return
	}
	if e, ok := t.Set(nft.EchoSet).Find(model.Frontend{Address: r.Packet.Destination}); ok && r.Packet.isEcho() {
		port, kind := nft.ParseComment(e.Comment)
		r.Service, r.Kind = port.String(), kind.String()
	}
}

func (r *Result) askedPacket() *Packet {
	if r.Asked != nil {
		return r.Asked
	}
	return &r.Packet
}

func (r *Result) commonSteps() int {
	first := r.Outcomes[0].Path
	n := len(first)
	for _, o := range r.Outcomes[1:] {
		i := 0
		for i < min(n, len(o.Path)) && o.Path[i].isSame(first[i]) {
			i++
		}
		n = i
	}
	return n
}

// JSON writes a result as one JSON object.
func JSON(w io.Writer, r *Result) error {
	type outcome struct {
		Outcome                 // with the path after the common steps
		AffinitySeconds float64 `json:"affinitySeconds,omitempty"`
	}
	// listener connects to another frontend of the Service, for the client.
	type listener struct {
		ConnectsTo string     `json:"connectsTo"`
		From       netip.Addr `json:"from,omitzero"`
	}
	n, asked := r.commonSteps(), r.askedPacket()
	out := struct {
		From      netip.Addr `json:"from,omitzero"` // absent: an unknown address of the node
		FromNode  bool       `json:"fromNode"`
		Interface string     `json:"interface,omitempty"`
		Protocol  string     `json:"protocol"`
		To        string     `json:"to"`
		Verdict   string     `json:"verdict"` // the verdict of the outcomes, or mixed
		Service   string     `json:"service,omitempty"`
		Kind      string     `json:"kind,omitempty"`     // of the frontend
		Frontend  string     `json:"frontend,omitempty"` // if it is a range of ports
		Listener  *listener  `json:"listener,omitempty"`
		Path      []Step     `json:"path"` // of all outcomes
		Outcomes  []outcome  `json:"outcomes"`
		LeftOut   []Omission `json:"leftOut,omitempty"`
		Conflicts []Claim    `json:"conflicts,omitempty"`
		Notes     []string   `json:"notes,omitempty"`
	}{
		From: asked.Source, FromNode: asked.FromNode, Interface: asked.Interface,
		Protocol: asked.protocolText(), To: asked.targetText(), Verdict: "mixed", Service: r.Service, Kind: r.Kind,
		Path: append([]Step{}, r.Outcomes[0].Path[:n]...), LeftOut: r.LeftOut, Conflicts: r.Conflicts, Notes: r.Notes,
	}
	if r.Frontend.IsRange() {
		out.Frontend = r.Frontend.String()
	}
	if r.Asked != nil {
		out.Listener = &listener{r.Packet.targetText(), r.Packet.Source}
	}
	if v, ok := r.Verdict(); ok {
		out.Verdict = v.String()
	}
	for _, o := range r.Outcomes {
		o.Path = append([]Step{}, o.Path[n:]...)
		out.Outcomes = append(out.Outcomes, outcome{o, o.Remember.Seconds()})
	}
	return terminal.JSON(w, out)
}

// Omission is an endpoint that takes no new connections.
type Omission struct {
	Endpoint netip.AddrPort `json:"endpoint"`
	Reason   string         `json:"reason"`
}

// MarshalJSON writes the endpoint as text.
func (o Omission) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Endpoint string `json:"endpoint"`
		Reason   string `json:"reason"`
	}{model.EndpointText(o.Endpoint), o.Reason})
}

// Claim is a service port that lost its claim to the frontend.
type Claim struct {
	Service string `json:"service"`
	Kind    string `json:"kind,omitempty"` // absent if a running nftproxy does not tell
}
