package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Status is the state of a node, in four parts: who reports, the rules, what they serve, and what is wrong.
type Status struct {
	APIVersion Version `json:"apiVersion"`
	From       string  `json:"from"` // [FromDaemon] or [FromKernel]
	// NoDaemon is why the report is from the kernel: where no daemon answers.
	NoDaemon string `json:"noDaemon,omitempty"`
	// Healthy reports whether the last sync succeeded and the source can be used.
	// Without a daemon it is true.
	Healthy bool `json:"healthy"`
	// Words are the words for all that the node serves, with any filter: balance, mixed, or absent
	// for Services.
	Words    words.Vocabulary `json:"words,omitzero"`
	Daemon   `json:"daemon"`
	Rules    `json:"rules"`
	Served   `json:"served"`
	Findings `json:"findings"`
	// ServicePorts are sorted by name. They are the last field, with a line for each, because
	// there may be many.
	ServicePorts []ServicePort `json:"servicePorts,omitempty"`
}

// Daemon is the process that reports, and its source.
type Daemon struct {
	Node string `json:"node,omitempty"`
	// Time is when the report was made, by the clock of the node.
	Time    time.Time `json:"time,omitzero"`
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Source  string    `json:"source,omitempty"` // of the objects
	// SourceError is why the source cannot be used now; what was read before stays in
	// use.
	SourceError *SourceError `json:"sourceError,omitempty"`
	// Warnings are about objects that are used, but not as their author may expect.
	Warnings []string `json:"warnings,omitempty"`
	// Seen are the newest resourceVersions that were received from the API server, of services
	// and endpointslices. With no change pending, the rules have all of them.
	Seen map[string]string `json:"seen,omitempty"`
	// PostponedUntil is when the source is read for the first time (--start-jitter);
	// zero: it is read already.
	PostponedUntil time.Time `json:"postponedUntil,omitzero"`
}

// Rules are the state of the rules in the kernel, and what they count.
type Rules struct {
	LastSync     *Sync     `json:"lastSync,omitempty"`
	LastSuccess  time.Time `json:"lastSuccess,omitzero"`  // end of the last successful sync
	PendingSince time.Time `json:"pendingSince,omitzero"` // time of the oldest unserved change
	// RulesChanged has the changes of rules by other programs; nil: none.
	RulesChanged *Interference `json:"rulesChanged,omitempty"`
	Affinity     []Affinity    `json:"affinity,omitempty"`
	Counted      bool          `json:"counted"` // connections are counted (--service-metrics)
	// Observe is about reading the connections that the rules refuse; absent: they do not log any
	// (--observe).
	Observe *Observing `json:"observe,omitempty"`
	// Refused are connections that the rules refused, by reason; absent without --observe, and
	// if there are none.
	Refused map[string]uint64 `json:"refused,omitempty"`
	// NodePortAddresses serve the frontends with the unspecified address.
	NodePortAddresses []netip.Addr `json:"nodePortAddresses,omitempty"`
	// Localhost are the loopback addresses on which the daemon listens for NodePorts of TCP.
	Localhost []netip.Addr `json:"localhostAddresses,omitempty"`
	// Announced are the addresses of Balances with announce.
	Announced []model.AnnouncedAddress `json:"announcedAddresses,omitempty"`
}

// Served sums up the Services, or those that a [Filter] selects.
type Served struct {
	Filtered  bool `json:"filtered,omitempty"` // a filter selects Services
	Services  int  `json:"services"`
	Balances  int  `json:"balances,omitempty"` // of the Services, come from a Balance
	Frontends int  `json:"frontends"`
	Endpoints int  `json:"endpoints"` // distinct ones that take connections
	// DidYouMean are names that resemble a filter that selects nothing.
	DidYouMean   []string        `json:"didYouMean,omitempty"`
	HealthChecks []ServiceHealth `json:"healthChecks,omitempty"`
	// EndpointChecks sums up the health checks of all endpoints, with any filter; absent
	// without checks.
	EndpointChecks *EndpointChecks `json:"endpointChecks,omitempty"`
	// FailingServers are the addresses that fail their health checks, the ones of the most
	// Services first; absent where Services are selected.
	FailingServers []FailingServer `json:"failingServers,omitempty"`
	// Starting are endpoints that start slowly, sorted by Service and address, the first ones if
	// there are many, and StartingCount is the number of all.
	Starting      []StartingServer `json:"starting,omitempty"`
	StartingCount int              `json:"startingCount,omitempty"`
	// Omitted is the number of frontends that are not listed, because they are too many.
	Omitted int `json:"omittedFrontends,omitempty"`
}

// Findings are what is not as it should be.
type Findings struct {
	// Problems are sorted by urgency, then object. ProblemCounts are their numbers by
	// reason.
	Problems      Problems             `json:"problems,omitempty"`
	ProblemCounts map[model.Reason]int `json:"problemCounts,omitempty"`
	// Notes are facts that operators should know, but need not change.
	Notes Problems `json:"notes,omitempty"`
}

// Values of [Status.From], and of [Description.From].
const (
	FromDaemon = "daemon" // a running nftproxy
	FromKernel = "kernel" // the rules
	FromInput  = "input"  // files or an API server
)

// SourceError is why the source cannot be used.
type SourceError struct {
	// Message has a line for each problem, the first ones if there are many.
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// Sync is one attempt to bring the kernel in sync with the source.
type Sync struct {
	Cause   string    `json:"cause"` // start, change, retry, check or drift
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Added   int       `json:"added"` // changes that were committed
	Changed int       `json:"changed"`
	Deleted int       `json:"deleted"`
	Error   string    `json:"error,omitempty"`
}

// ServiceHealth is the answer of the node to load balancers about a Service.
type ServiceHealth struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      uint16 `json:"port"`
	// Endpoints is the number of ready endpoints on this node by family.
	Endpoints map[string]int `json:"endpoints"`
}

// Affinity is the use of one map of clients with session affinity.
type Affinity struct {
	Family  string `json:"family"`
	Map     string `json:"map"`
	Clients int    `json:"clients"`
	// AtLeast reports that there may be more clients: kernels before 6.16 keep no
	// count, and nftproxy counts up to a limit.
	AtLeast bool `json:"atLeast,omitempty"`
	Size    int  `json:"size"` // most clients
}

// LocalAffinityMap is the map of clients of frontends with the traffic policy Local.
const LocalAffinityMap = "local-affinity"

// SharedAffinityMap is the map of clients that are bound to one server for all ports of a Balance.
const SharedAffinityMap = "shared-affinity"

// Name returns the family, with the policy if that is Local.
func (a *Affinity) Name() string {
	switch a.Map {
	case LocalAffinityMap:
		return a.Family + ", policy Local"
	case SharedAffinityMap:
		return a.Family + ", all ports of a Balance"
	}
	return a.Family
}

// Count returns the number of clients as text.
func (a *Affinity) Count() string {
	if a.AtLeast {
		return fmt.Sprintf("at least %d", a.Clients)
	}
	return strconv.Itoa(a.Clients)
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Balance   bool   `json:"balance,omitempty"` // the Service comes from a Balance
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // of the Service
	Port      string `json:"port,omitempty"`
	Protocol  string `json:"protocol"`
	// AffinitySeconds is how long a client stays on its endpoint; absent: no affinity.
	AffinitySeconds float64 `json:"affinitySeconds,omitempty"`
	Scheduler       string  `json:"scheduler,omitempty"`   // unless it is round-robin or unknown
	MaglevSlots     int     `json:"maglevSlots,omitempty"` // of the table of the schedulers maglev and maglev-port
	// Stated are facts of the Service object that no rule shows; absent if the report is
	// from the kernel.
	setting.Stated
	Frontends []Frontend `json:"frontends"`
}

// Frontend is an address that clients dial.
type Frontend struct {
	Kind    string `json:"kind"`    // ClusterIP, NodePort, external IP or load balancer IP
	Address string `json:"address"` // with the port
	Decision
	Outside *Decision `json:"outside,omitempty"` // for clients outside of the cluster, if it differs
	// Known is the number of all endpoints, including those that take no connections;
	// absent if the report is from the kernel.
	Known        int    `json:"knownEndpoints,omitempty"`
	Policy       string `json:"policy,omitempty"`       // Local, if that is the traffic policy
	SourceRanges bool   `json:"sourceRanges,omitempty"` // not all clients may connect
	AllowList    bool   `json:"allowList,omitempty"`    // because only those in a list may
	DenyList     bool   `json:"denyList,omitempty"`     // because those in a list may not
	Limits       bool   `json:"limits,omitempty"`       // connections are limited
	Relayed      bool   `json:"relayed,omitempty"`      // nftproxy run relays the connections
	// ClientAddresses is keep or masquerade; absent: as the kind and the policy have it.
	ClientAddresses string `json:"clientAddresses,omitempty"`
	// Connections is the number of new connections, including rejected and dropped
	// ones; absent without counters.
	Connections *uint64 `json:"connections,omitempty"`
}

// Decision is the verdict on a new connection.
type Decision struct {
	Verdict   string `json:"verdict"`             // forward, reject or drop
	Endpoints int    `json:"endpoints,omitempty"` // number of candidates
}

// WriteJSON writes the report as one JSON object, with a line for each service port.
func (r *Status) WriteJSON(w io.Writer) error {
	head := *r
	head.ServicePorts = nil
	b, err := json.MarshalIndent(&head, "", "  ")
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	out := bufio.NewWriter(w)
	out.Write(bytes.TrimSuffix(b, []byte("\n}")))
	out.WriteString(",\n  \"servicePorts\": [")
	separator := "\n    "
	for i := range r.ServicePorts {
		if b, err = json.Marshal(&r.ServicePorts[i]); err != nil {
			return fmt.Errorf("write status: %w", err)
		}
		out.WriteString(separator)
		out.Write(b)
		separator = ",\n    "
	}
	out.WriteString("\n  ]\n}\n")
	return out.Flush()
}

// EndpointChecks sums up the health checks of endpoints. An endpoint is an address of a
// Service.
type EndpointChecks struct {
	Services int `json:"services"`
	Balances int `json:"balances,omitempty"` // of the Services, come from a Balance
	Passing  int `json:"passing"`            // also if the last check failed, but not enough of them
	Failing  int `json:"failing"`
	Waiting  int `json:"waiting,omitempty"` // for the first check
}

// FailingServer is an address that fails its health checks. Many Services may have it, each
// with a problem of its own, although the cause is one: the first of them is named.
type FailingServer struct {
	Address           string    `json:"address"`
	Services          int       `json:"services"`
	Balances          int       `json:"balances,omitempty"` // of the Services, come from a Balance
	model.ServiceText           // the first one
	Name              string    `json:"name,omitempty"` // of DNS that has the address for the first one
	Message           string    `json:"message"`        // of a check that fails
	Since             time.Time `json:"since"`          // of the first check that failed
}

// StartingServer is an endpoint of a Service that starts slowly.
type StartingServer struct {
	model.ServiceText
	Address string `json:"address"` // with the port
	Starting
}

// Interference sums up what other programs did to the rules. All of it was repaired.
type Interference struct {
	Times   int       `json:"times"` // since the start
	Last    time.Time `json:"last"`
	Process string    `json:"process,omitempty"` // of the last one, as far as it is known
	Changes int       `json:"changes"`           // that the last repair took
	// Differences are the first changes of the last repair.
	Differences []Difference `json:"differences,omitempty"`
}
