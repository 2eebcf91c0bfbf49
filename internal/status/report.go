// Package status reports what a node serves and whether its rules are up to date:
// a running daemon answers over HTTP; where none runs, the report is read from the
// kernel's tables.
package status

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// Report is the state of a node. The names of the JSON fields are stable;
// unknown fields are left out.
type Report struct {
	From string `json:"from"` // [Daemon] or [Kernel]
	// Healthy reports whether the last sync succeeded and the source can be used.
	// Without a daemon it is true.
	Healthy bool   `json:"healthy"`
	Node    string `json:"node,omitempty"`
	Version string `json:"version,omitempty"`
	Source  string `json:"source,omitempty"` // of the objects
	// SourceError is why the source cannot be used now; what was read before stays in
	// use.
	SourceError *SourceError `json:"sourceError,omitempty"`
	// Warnings are about objects that are used, but not as their author may expect.
	Warnings     []string    `json:"warnings,omitempty"`
	Started      time.Time   `json:"started,omitzero"` // of the daemon
	LastSync     *SyncReport `json:"lastSync,omitempty"`
	LastSuccess  time.Time   `json:"lastSuccess,omitzero"`  // end of the last successful sync
	PendingSince time.Time   `json:"pendingSince,omitzero"` // time of the oldest unserved change
	// PostponedUntil is when the source is read for the first time (--start-jitter);
	// zero: it is read already.
	PostponedUntil time.Time `json:"postponedUntil,omitzero"`
	// RulesChanged is what other programs did to the rules; nil: nothing.
	RulesChanged *Interference `json:"rulesChanged,omitempty"`
	// NoDaemon is why the report is from the kernel: where no daemon answers.
	NoDaemon string `json:"noDaemon,omitempty"`

	// Filtered reports that the following is about the Services that a [Filter] selects.
	Filtered  bool `json:"filtered,omitempty"`
	Services  int  `json:"services"`
	Frontends int  `json:"frontends"`
	Endpoints int  `json:"endpoints"` // distinct ones that take connections
	// DidYouMean are names that resemble a filter that selects nothing.
	DidYouMean   []string      `json:"didYouMean,omitempty"`
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`
	// EndpointChecks sums up the health checks of endpoints, whatever the filter; absent
	// without any.
	EndpointChecks *EndpointChecks `json:"endpointChecks,omitempty"`
	// FailingServers are the addresses that fail their health checks, those of the most
	// Services first; absent where Services are selected.
	FailingServers []FailingServer `json:"failingServers,omitempty"`
	// NodePortAddresses serve the frontends with the unspecified address.
	NodePortAddresses []netip.Addr `json:"nodePortAddresses,omitempty"`
	// Localhost are the loopback addresses on which the daemon listens for NodePorts of TCP.
	Localhost []netip.Addr `json:"localhostAddresses,omitempty"`
	Affinity  []Affinity   `json:"affinity,omitempty"`
	// Problems are sorted by urgency, then object. ProblemCounts are their numbers by
	// reason.
	Problems      []Problem      `json:"problems,omitempty"`
	ProblemCounts map[string]int `json:"problemCounts,omitempty"`
	// Notes are what operators should know, but need not change.
	Notes   []Problem `json:"notes,omitempty"`
	Counted bool      `json:"counted"` // connections are counted (--service-metrics)
	// Omitted is the number of frontends that are not listed, because they are too many.
	Omitted int `json:"omittedFrontends,omitempty"`
	// ServicePorts are sorted by name. WriteJSON writes them last and one by one,
	// because there may be many.
	ServicePorts []ServicePort `json:"servicePorts,omitempty"`

	inUse []netip.AddrPort // endpoints of all frontends, if the report is from the kernel
}

// EndpointAddresses yields the addresses of all endpoints that take connections, whatever
// the filter, if the report is from the kernel.
func (r *Report) EndpointAddresses(yield func(netip.Addr) bool) {
	for _, e := range r.inUse {
		if !yield(e.Addr()) {
			return
		}
	}
}

// AddProblem adds a problem that the caller has found.
func (r *Report) AddProblem(p Problem) {
	r.Problems = append(r.Problems, p)
	r.sortProblems()
}

// Values of [Report.From].
const (
	Daemon = "daemon"
	Kernel = "kernel"
)

// SourceError is why the source cannot be used.
type SourceError struct {
	// Message has a line for each problem, the first ones if there are many.
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// SyncReport is one attempt to bring the kernel in sync with the source.
type SyncReport struct {
	Cause   string    `json:"cause"` // start, change, retry, check or drift
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Added   int       `json:"added"` // changes that were committed
	Changed int       `json:"changed"`
	Deleted int       `json:"deleted"`
	Error   string    `json:"error,omitempty"`
}

// HealthCheck is the answer of the node to load balancers about a Service.
type HealthCheck struct {
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

// name returns the family, with the policy if that is Local.
func (a *Affinity) name() string {
	if a.Map == nft.LocalAffinityMap {
		return a.Family + ", policy Local"
	}
	return a.Family
}

func (a *Affinity) count() string {
	if a.AtLeast {
		return fmt.Sprintf("at least %d", a.Clients)
	}
	return strconv.Itoa(a.Clients)
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // of the Service
	Port      string `json:"port,omitempty"`
	Protocol  string `json:"protocol"`
	// AffinitySeconds is how long a client stays on its endpoint; absent: no affinity.
	AffinitySeconds float64 `json:"affinitySeconds,omitempty"`
	Scheduler       string  `json:"scheduler,omitempty"` // unless it is round-robin or unknown
	// Stated is what the object of the Service says and no rule shows; absent if the report is
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

// ServiceCount is the number of new connections to the frontends of one kind
// and family of a service port.
type ServiceCount struct {
	Port        model.PortName
	Family      model.Family
	Kind        model.Kind
	Connections uint64
}

// Service returns the Service that has a frontend with an address and port.
func (r *Report) Service(address string, protocol model.Protocol) (model.ServiceName, bool) {
	for i := range r.ServicePorts {
		p := &r.ServicePorts[i]
		if p.Protocol == protocol.String() && slices.ContainsFunc(p.Frontends, func(f Frontend) bool { return f.Address == address }) {
			return model.ServiceName{Namespace: p.Namespace, Name: p.Name}, true
		}
	}
	return model.ServiceName{}, false
}

// WriteJSON writes the report as one JSON object, with a line for each service port.
func (r *Report) WriteJSON(w io.Writer) error {
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
