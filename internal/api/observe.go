package api

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Observed is the answer to "GET /observe": connections that the rules have refused, and those of observed Services.
type Observed struct {
	APIVersion Version `json:"apiVersion"`
	// Time is of the answer. Instance differs after a restart, with which numbers begin again.
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"`
	Node     string    `json:"node,omitempty"`
	// Level is what the rules log: off, refusals, failures or connections (--observe). With off there are no
	// events.
	Level string `json:"level"`
	// Error is why events are not read, since Since.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Total is the number of events since the start of the process, and Lost of those that the
	// kernel has dropped because they were not read fast enough. Rules log samples: at most 10 a
	// second of a frontend and a reason, and 500 of a reason.
	Total uint64 `json:"total"`
	Lost  uint64 `json:"lost"`
	// Skipped is the number of connections that were not followed, because too many were open.
	Skipped uint64 `json:"skipped,omitempty"`
	// Sampled are connections of all Services whose outcome was found with the level failures, and
	// SampledFailed those of them that endpoints have refused or not answered. They have no events.
	Sampled       uint64 `json:"sampled,omitempty"`
	SampledFailed uint64 `json:"sampledFailed,omitempty"`
	// Next is the number to ask with (after) for the events that follow, and Missed how many of
	// those that were asked for are no longer kept.
	Next   uint64 `json:"next"`
	Missed uint64 `json:"missed,omitempty"`
	// Events are those that match the query, oldest first.
	Events []Observation `json:"events"`
	// Words are the words for all that the node serves: balance, mixed, or absent for Services.
	Words words.Vocabulary `json:"words,omitzero"`
	// Minutes is the time that Refused and Reasons are about. Refused has the largest sums that match the query, and
	// Reasons the number of events by reason; with a filter, of all sums that match.
	Minutes float64           `json:"minutes"`
	Refused []RefusedClient   `json:"refused,omitempty"`
	Reasons map[string]uint64 `json:"reasons,omitempty"`
	// Meanings explain the reasons that the answer has.
	Meanings []Meaning `json:"meanings,omitempty"`
}

// Meaning explains a reason.
type Meaning struct {
	Reason string `json:"reason"`
	Ends   string `json:"ends"`   // rejected or dropped; empty: no rule has refused the connection
	Text   string `json:"text"`   // why
	Advice string `json:"advice"` // what to do; empty: nothing
}

// AddMeanings explains the reasons that the document has.
func (o *Observed) AddMeanings() {
	has := func(name string) bool {
		return o.Reasons[name] > 0 || slices.ContainsFunc(o.Events, func(e Observation) bool { return e.Reason == name }) ||
			slices.ContainsFunc(o.Refused, func(r RefusedClient) bool { return r.Reason == name })
	}
	for i := range model.Refusals {
		if r := &model.Refusals[i]; has(r.Name) {
			o.Meanings = append(o.Meanings, Meaning{r.Name, r.Ends(), o.Words.Text(r.Text), o.Words.Text(r.Advice)})
		}
	}
	for i := range model.Courses {
		if c := &model.Courses[i]; has(c.Name) {
			o.Meanings = append(o.Meanings, Meaning{Reason: c.Name, Text: o.Words.Text(c.Text), Advice: o.Words.Text(c.Advice)})
		}
	}
}

// Observing is the state of reading what the rules log.
type Observing struct {
	Level  string `json:"level"`  // refusals, failures or connections
	Events uint64 `json:"events"` // since the start of the process
	Lost   uint64 `json:"lost"`   // of those that the kernel has dropped because they were not read fast enough
	// Refused are the events of connections that rules have refused, Failed of those that
	// endpoints have refused or not answered, and Served the others.
	Refused uint64 `json:"refused"`
	Failed  uint64 `json:"failed"`
	Served  uint64 `json:"served"`
	// Sampled are connections whose outcome was found with the level failures, and SampledFailed
	// those of them that endpoints have refused or not answered.
	Sampled       uint64 `json:"sampled,omitempty"`
	SampledFailed uint64 `json:"sampledFailed,omitempty"`
	// Skipped is the number of connections that were not followed, because too many were open.
	Skipped uint64 `json:"skipped,omitempty"`
	// Error is why events are not read, since Since.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// Observation is an event: a packet that the rules have refused, or a connection to an endpoint.
type Observation struct {
	Number uint64    `json:"number"`         // rises by one
	Time   time.Time `json:"time"`           // when it was read, at most a tenth of a second later
	Node   string    `json:"node,omitempty"` // on which it was, if several were asked
	// Outcome is refused (by rules), endpoint-refused, unanswered or served.
	Outcome string `json:"outcome"`
	// Reason is one word: why, or how the connection went on. Ends is rejected or dropped; absent
	// with the outcome refused: a rule of another program has logged the packet, and reason is
	// its text.
	Reason   string `json:"reason"`
	Ends     string `json:"ends,omitempty"`
	Protocol string `json:"protocol"`
	Client   string `json:"client"`        // with its port, if it is known
	Pod      string `json:"pod,omitempty"` // namespace/name of the client, with --pods
	Frontend string `json:"frontend"`      // that the client dialled
	// Namespace, Service and Port name the service port; Port is absent if the address is of the
	// Service, and the port is not.
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service,omitempty"`
	Balance   bool   `json:"balance,omitempty"` // the Service comes from a Balance, or all do if there is none
	Port      string `json:"port,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"` // if it was chosen already
	// Seconds is how long a connection to an endpoint has lasted, from its first packet. Sent and
	// Received are bytes of the client and of the endpoint, with the headers of IP; absent: the
	// kernel does not count them (net.netfilter.nf_conntrack_acct).
	Seconds  float64 `json:"seconds,omitempty"`
	Sent     *uint64 `json:"sent,omitempty"`
	Received *uint64 `json:"received,omitempty"`
}

// RefusedClient sums up the events of a client, a reason and a service port.
type RefusedClient struct {
	Client    string    `json:"client"`
	Pod       string    `json:"pod,omitempty"`
	Reason    string    `json:"reason"`
	Protocol  string    `json:"protocol"`
	Namespace string    `json:"namespace,omitempty"`
	Service   string    `json:"service,omitempty"`
	Port      string    `json:"port,omitempty"`
	Frontend  string    `json:"frontend,omitempty"` // if no Service has it
	Events    uint64    `json:"events"`             // at least
	Last      time.Time `json:"last"`
}

// Words are the words for the Service.
func (o *Observation) Words() words.Vocabulary { return words.Of(o.Balance) }

// ServiceText returns "namespace/name:port"; empty: there is no Service.
func (o *Observation) ServiceText() string { return serviceText(o.Namespace, o.Service, o.Port) }

// ServiceText returns "namespace/name:port"; empty: there is no Service.
func (r *RefusedClient) ServiceText() string { return serviceText(r.Namespace, r.Service, r.Port) }

func serviceText(namespace, name, port string) string {
	if name == "" {
		return ""
	}
	return model.PortName{Service: model.ServiceName{Namespace: namespace, Name: name}, Port: port}.String()
}

// ObserveQuery is a question about events. The zero value asks for none.
type ObserveQuery struct {
	Filter                 // of Services: Namespace and Names
	Reasons  []string      // none: all
	Outcomes []string      // none: all
	Client   netip.Prefix  // invalid: all
	Within   time.Duration // only events of that time; zero: all
	After    uint64        // the number of an event: only later ones, the oldest first; zero: the newest ones
	Limit    int           // most events
	Wait     time.Duration // for an event, if there is none
	Top      int           // most sums
}

const (
	maxReasons = 50
	// MaxObserved is the most events, and the most sums, of an answer.
	MaxObserved = 1000
	// MaxWait is the longest Wait.
	MaxWait = 20 * time.Second
)

func (q *ObserveQuery) parameters() []parameter {
	const moment = "a time such as 5m"
	number := fmt.Sprintf("a number from 0 to %d", MaxObserved)
	return append(q.Filter.parameters(), []parameter{
		{name: "reason", to: &q.Reasons}, {name: "outcome", to: &q.Outcomes}, {name: "client", to: &q.Client},
		{name: "since", to: &q.Within, form: moment}, {name: "wait", to: &q.Wait, form: moment},
		{name: "after", to: &q.After, form: "the number of an event"},
		{name: "limit", to: &q.Limit, form: number, most: MaxObserved, zero: true},
		{name: "top", to: &q.Top, form: number, most: MaxObserved, zero: true},
	}...)
}

const (
	defaultObserved = 100
	defaultSums     = 20
)

// ParseObserveQuery returns the query of a URL.
func ParseObserveQuery(v url.Values) (ObserveQuery, error) {
	filter, err := ParseFilter(v)
	if err != nil {
		return ObserveQuery{}, err
	}
	q := ObserveQuery{Filter: *filter, Limit: defaultObserved, Top: defaultSums}
	if err := parse(v, q.parameters()); err != nil {
		return q, err
	}
	if len(q.Reasons) > maxReasons {
		return q, fmt.Errorf("reason: %d names, at most %d are allowed", len(q.Reasons), maxReasons)
	}
	for _, r := range q.Reasons {
		if err := CheckReason(r); err != nil {
			return q, fmt.Errorf("reason: %w", err)
		}
	}
	for _, o := range q.Outcomes {
		if !slices.Contains(model.OutcomeNames, o) {
			return q, fmt.Errorf("outcome: %q is unknown: %s", o, suggest.OneOf(model.OutcomeNames...))
		}
	}
	if q.Wait > MaxWait {
		return q, fmt.Errorf("wait: %s is longer than %s", q.Wait, MaxWait)
	}
	return q, nil
}

// ParseClients parses a range of clients, or an address.
func ParseClients(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is neither an address nor a range: write for example 10.1.2.3 or 10.0.0.0/8", text)
	}
	return p.Masked(), nil
}

// CheckReason returns an error for a name that is not of a reason.
func CheckReason(name string) error {
	if _, _, ok := model.ReasonText(name); ok {
		return nil
	}
	all := model.ReasonNames()
	return fmt.Errorf("%q is not a reason%s", name, cmp.Or(suggest.DidYouMean(suggest.Similar(name, all)), ": "+suggest.OneOf(all...)))
}

// MatchesReason reports whether the query selects a reason.
func (q *ObserveQuery) MatchesReason(reason string) bool {
	return len(q.Reasons) == 0 || slices.Contains(q.Reasons, reason)
}

// MatchesOutcome reports whether the query selects an outcome.
func (q *ObserveQuery) MatchesOutcome(o model.Outcome) bool {
	return len(q.Outcomes) == 0 || slices.Contains(q.Outcomes, o.String())
}

// SelectsSums reports whether the query leaves sums out.
func (q *ObserveQuery) SelectsSums() bool {
	return q.Selects() || len(q.Reasons)+len(q.Outcomes) > 0 || q.Client.IsValid()
}

// MatchesClient reports whether the query selects a client.
func (q *ObserveQuery) MatchesClient(a netip.Addr) bool {
	return !q.Client.IsValid() || q.Client.Contains(a)
}

// MatchesService reports whether the query selects a Service; the zero value is no Service.
func (q *ObserveQuery) MatchesService(s model.ServiceName) bool {
	return !q.Selects() || s.Name != "" && q.Matches(s)
}
