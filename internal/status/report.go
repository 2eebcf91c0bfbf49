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
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Report is the state of a node. The names of the JSON fields are stable;
// unknown fields are left out.
type Report struct {
	// From is what the report is read from: [Daemon] or [Kernel].
	From string `json:"from"`
	// Healthy reports that the kernel holds what the source said last. Without a
	// daemon that is not known, and it is true.
	Healthy bool   `json:"healthy"`
	Node    string `json:"node,omitempty"`
	Version string `json:"version,omitempty"`
	// Source says where the objects come from.
	Source  string    `json:"source,omitempty"`
	Started time.Time `json:"started,omitzero"` // of the daemon
	// LastSync is the last attempt, LastSuccess the end of the last good one.
	LastSync    *SyncReport `json:"lastSync,omitempty"`
	LastSuccess time.Time   `json:"lastSuccess,omitzero"`
	// PendingSince is the oldest change that no good sync has served.
	PendingSince time.Time `json:"pendingSince,omitzero"`

	Services     int           `json:"services"`
	Frontends    int           `json:"frontends"`
	Endpoints    int           `json:"endpoints"` // each counts once
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`
	// NodePortAddresses serve the frontends with the unspecified address.
	NodePortAddresses []netip.Addr `json:"nodePortAddresses,omitempty"`
	Affinity          []Affinity   `json:"affinity,omitempty"`
	Problems          []Problem    `json:"problems,omitempty"`
	// Counted reports that connections are counted (--service-metrics).
	Counted bool `json:"counted"`
	// ServicePorts are sorted by name. They come last and are written one by
	// one, because there may be many.
	ServicePorts []ServicePort `json:"servicePorts,omitempty"`
}

// Values of [Report.From].
const (
	Daemon = "daemon"
	Kernel = "kernel"
)

// SyncReport is one attempt to bring the kernel to what the source says.
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
	// AtLeast means that there may be more clients: kernels before 6.16 keep no
	// count, and they are counted up to a limit.
	AtLeast bool `json:"atLeast,omitempty"`
	Size    int  `json:"size"` // most clients
}

// name returns the family, and the map if it is not the usual one.
func (a *Affinity) name() string {
	if a.Map == nft.LocalAffinityMap {
		return a.Family + ", policy Local"
	}
	return a.Family
}

// count returns the number of clients.
func (a *Affinity) count() string {
	if a.AtLeast {
		return fmt.Sprintf("at least %d", a.Clients)
	}
	return strconv.Itoa(a.Clients)
}

// Problem is something that is not as the objects ask. Reason is one word.
type Problem struct {
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"` // of the Service
	Port      string     `json:"port,omitempty"`
	Protocol  string     `json:"protocol"`
	Frontends []Frontend `json:"frontends"`
}

// Frontend is what clients dial.
type Frontend struct {
	Kind    string `json:"kind"`    // ClusterIP, NodePort, external IP or load balancer IP
	Address string `json:"address"` // with the port
	Decision
	// Outside is the decision for clients outside of the cluster, if it differs.
	Outside *Decision `json:"outside,omitempty"`
	// Connections is the number of new connections, with those that were
	// refused or dropped; absent where nothing is counted.
	Connections *uint64 `json:"connections,omitempty"`
}

// Decision is the verdict on a new connection.
type Decision struct {
	Verdict   string `json:"verdict"`             // forward, reject or drop
	Endpoints int    `json:"endpoints,omitempty"` // that may get it
}

// ServiceCount is the number of new connections to the frontends of one kind
// and family of a service port.
type ServiceCount struct {
	Port        model.PortName
	Family      model.Family
	Kind        model.Kind
	Connections uint64
}

// WriteJSON writes the report as one JSON object, with a line for each service
// port.
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
