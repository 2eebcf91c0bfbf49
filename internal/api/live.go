package api

import (
	"fmt"
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Sample is the answer to "GET /live".
type Sample struct {
	APIVersion Version `json:"apiVersion"`
	// Time is when the numbers were read, which happens at most once a second. Uptime
	// is the same in seconds since the start of the process, by a clock that is never
	// set; Instance differs after a restart.
	Time     time.Time `json:"time"`
	Uptime   float64   `json:"uptime"`
	Instance string    `json:"instance"`

	Version      string       `json:"version"`
	Node         string       `json:"node,omitempty"`
	Source       string       `json:"source"` // of the objects
	Healthy      bool         `json:"healthy"`
	SourceError  *SourceError `json:"sourceError,omitempty"` // why the source cannot be used
	Warnings     int          `json:"warnings,omitempty"`    // about the objects of the source
	Started      time.Time    `json:"started"`               // of the process
	LastSuccess  time.Time    `json:"lastSuccess,omitzero"`
	PendingSince time.Time    `json:"pendingSince,omitzero"`
	Problems     []Problem    `json:"problems,omitempty"` // some of them
	ProblemCount int          `json:"problemCount"`
	Syncs        Syncs        `json:"syncs"`
	Observe      *Observing   `json:"observe,omitempty"` // of refused connections; absent: they are not logged (--observe)
	Changes      []Change     `json:"changes,omitempty"` // newest first

	Totals Totals `json:"totals"`
	// Words are the words for all that the node serves: balance, mixed, or absent for Services.
	Words words.Vocabulary `json:"words,omitzero"`
	// Counted reports that connections are counted (--service-metrics).
	Counted bool `json:"counted"`
	// RecentSince is the Uptime from which Service.Recent is counted; zero: unknown.
	RecentSince float64 `json:"recentSince,omitempty"`
	// Matching is the number of Services that match the filter. Services are those
	// with the most recent connections, at most as many as were asked for.
	Matching int           `json:"matching"`
	Services []LiveService `json:"services,omitempty"`
	Detail   *LiveDetail   `json:"detail,omitempty"` // of the Service that was asked for
}

// Complete reports whether the sample has all Services that match its filter.
func (s *Sample) Complete() bool { return len(s.Services) == s.Matching }

// Totals are sums over all Services, with any filter.
type Totals struct {
	Services    int    `json:"services"`
	Frontends   int    `json:"frontends"`
	Endpoints   int    `json:"endpoints"`          // distinct ones
	Unserved    int    `json:"unserved"`           // frontends that reject or drop
	Starting    int    `json:"starting,omitempty"` // endpoints that start slowly, once for each Service
	Connections uint64 `json:"connections"`        // since the start of the process
}

// Syncs summarizes the attempts to bring the kernel in sync with the source.
type Syncs struct {
	Total  uint64 `json:"total"` // since the start of the process
	Failed uint64 `json:"failed"`
	// Recent is the number of latest syncs that the following seconds are about.
	Recent int     `json:"recent"`
	Last   float64 `json:"last"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// Change is a sync that changed rules, or failed.
type Change struct {
	Number   uint64    `json:"number"` // rises by one
	Time     time.Time `json:"time"`   // of its start
	Cause    string    `json:"cause"`  // start, change, retry, check or drift
	Services []string  `json:"services,omitempty"`
	More     int       `json:"more,omitempty"` // Services that are not named
	Added    int       `json:"added"`
	Changed  int       `json:"changed"`
	Deleted  int       `json:"deleted"`
	Seconds  float64   `json:"seconds"`
	Error    string    `json:"error,omitempty"`
	Repeated int       `json:"repeated,omitempty"` // further attempts with the same error
}

// LiveService is a Service and its connections.
type LiveService struct {
	Balance       bool   `json:"balance,omitempty"` // it comes from a Balance
	Namespace     string `json:"namespace"`
	Name          string `json:"name"`
	Frontends     int    `json:"frontends"`
	Endpoints     int    `json:"endpoints"`               // distinct ones
	Unserved      int    `json:"unserved,omitempty"`      // frontends that reject or drop
	Relayed       bool   `json:"relayed,omitempty"`       // nftproxy run relays the connections
	StartingCount int    `json:"startingCount,omitempty"` // of endpoints that start slowly
	// Connections are new ones since the start of the process, including rejected and
	// dropped ones, and Recent those since RecentSince; absent without counters.
	Connections *uint64 `json:"connections,omitempty"`
	Recent      *uint64 `json:"recent,omitempty"`
}

// ServiceName returns the name with the namespace.
func (s *LiveService) ServiceName() model.ServiceName {
	return model.ServiceName{Namespace: s.Namespace, Name: s.Name}
}

// LiveDetail is one Service with its ports.
type LiveDetail struct {
	LiveService
	Ports []LivePort `json:"ports"`
	// Read is when the counters of endpoints were read, on the clock of Sample.Uptime.
	Read float64 `json:"read"`
	// Failing are endpoints that fail their health check, the first ones by address, and
	// FailingCount is the number of all.
	Failing      []FailingEndpoint `json:"failing,omitempty"`
	FailingCount int               `json:"failingCount,omitempty"`
}

// FailingEndpoint is an endpoint that fails its health check.
type FailingEndpoint struct {
	Address string    `json:"address"` // without a port
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// LivePort is a service port with its endpoints.
type LivePort struct {
	ServicePort
	// EndpointList has the endpoints that get new connections, of both families.
	EndpointList []LiveEndpoint `json:"endpointList,omitempty"`
}

// LiveEndpoint is where connections go.
type LiveEndpoint struct {
	Address  string    `json:"address"`            // with the port
	Local    bool      `json:"local"`              // on this node
	Starting *Starting `json:"starting,omitempty"` // absent: it has its whole weight
	// Connections are new ones since the start of the process; absent without counters of
	// endpoints (--endpoint-metrics).
	Connections *uint64 `json:"connections,omitempty"`
}

// LiveQuery is a question about live data. The zero value asks for the busiest Services.
type LiveQuery struct {
	Limit   int    // most Services; zero: as many as the daemon chooses
	Filter  string // part of the names of Services
	Service string // "namespace/name" of the Service in the detail; empty: none
}

const (
	defaultLive = 100  // Services in an answer
	maxLive     = 1000 // that may be asked for
	maxLiveText = 512  // bytes
)

func (q *LiveQuery) parameters() []parameter {
	return []parameter{
		{name: "limit", to: &q.Limit, most: maxLive, form: fmt.Sprintf("a number from 0 to %d", maxLive)},
		{name: "filter", to: &q.Filter}, {name: "service", to: &q.Service},
	}
}

// ParseLiveQuery returns the query of a URL.
func ParseLiveQuery(values url.Values) (LiveQuery, error) {
	q := LiveQuery{Limit: defaultLive}
	err := parse(values, q.parameters())
	if err == nil && (len(q.Filter) > maxLiveText || len(q.Service) > maxLiveText) {
		err = fmt.Errorf("filter and service have at most %d bytes", maxLiveText)
	}
	return q, err
}
