package api

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Drains is the state of drained endpoints in a daemon.
type Drains struct {
	APIVersion Version `json:"apiVersion"`
	model.Drains
}

// DrainResult is the report of drain and undrain.
type DrainResult struct {
	APIVersion Version `json:"apiVersion"`
	File       string  `json:"file"`
	// NoDaemon is why no running nftproxy was asked, and Error why it cannot use the file.
	NoDaemon string `json:"noDaemon,omitempty"`
	Error    string `json:"error,omitempty"`
	// Unknown reports that no earlier list is known, so that nothing is drained.
	Unknown   bool              `json:"unknown,omitempty"`
	Words     words.Vocabulary  `json:"words,omitzero"` // for what the node serves
	Endpoints []DrainedEndpoint `json:"endpoints"`
	// NotCounted is why connections are not counted.
	NotCounted string `json:"notCounted,omitempty"`
}

// DrainedEndpoint is an endpoint that a command has drained, or put back into service.
type DrainedEndpoint struct {
	Endpoint string           `json:"endpoint"`
	Service  string           `json:"service,omitempty"` // empty: all
	Drained  bool             `json:"drained"`
	Since    time.Time        `json:"since,omitzero"`
	Services []DrainedService `json:"services,omitempty"` // that have the endpoint
	Open     *OpenCount       `json:"open,omitempty"`     // connections
}

// DrainedService is a Service that has a drained endpoint.
type DrainedService struct {
	model.ServiceText
	Endpoints int `json:"endpoints"`
	Left      int `json:"left"` // take new connections
}

// OpenCount is a number of open connections.
type OpenCount struct {
	TCP   int `json:"tcp"`
	UDP   int `json:"udp"`
	SCTP  int `json:"sctp"`
	Total int `json:"total"`
}

// Add adds connections of a protocol.
func (n *OpenCount) Add(p model.Protocol, more int) {
	switch p {
	case model.TCP:
		n.TCP += more
	case model.UDP:
		n.UDP += more
	default:
		n.SCTP += more
	}
	n.Total += more
}

// Text returns for example "12 TCP, 3 UDP".
func (n *OpenCount) Text() string {
	var parts []string
	for _, c := range []struct {
		n    int
		name string
	}{{n.TCP, "TCP"}, {n.UDP, "UDP"}, {n.SCTP, "SCTP"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.name))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// DrainQuery is a question about drains.
type DrainQuery struct {
	// Targets are the endpoints whose drain is asked about, as drain.Target.Encode returns
	// them.
	Targets []string
	// Begin asks for the endpoints whose text begins so; nil: for none.
	Begin *string
}

func (q DrainQuery) values() url.Values {
	v := encode([]parameter{{name: "target", to: &q.Targets}})
	if q.Begin != nil {
		v.Set("begin", *q.Begin)
	}
	return v
}

// maxQuery is how long the query may be: the daemon reads 16 KiB of headers.
const maxQuery = 12 << 10

// Fits returns how many targets fit into one question, and whether these do.
func (q DrainQuery) Fits() (most int, fit bool) {
	n := len(q.values().Encode())
	if n <= maxQuery {
		return len(q.Targets), true
	}
	return len(q.Targets) * maxQuery / n, false
}

// ParseLabel parses a frontend of an [Effect].
func ParseLabel(text string) (model.Frontend, error) {
	protocol, target, _ := strings.Cut(text, " ")
	return model.ParseFrontend(protocol, target)
}

// ControlPath is where the control socket takes changes.
const ControlPath = "/control"

// Control is a request to a control socket.
type Control struct {
	APIVersion RequestVersion `json:"apiVersion"`        // absent: this one; nftproxy.dev/v1 has the same fields
	Action     string         `json:"action"`            // set, add, remove, disable, enable, undo or list
	Balance    string         `json:"balance,omitempty"` // name, or namespace/name; empty: all, to list or undo
	Server     string         `json:"server,omitempty"`  // address, or address with port; empty: all, to undo
	Weight     *int           `json:"weight,omitempty"`
	Force      bool           `json:"force,omitempty"` // also the last server that takes connections
}

// RequestVersion is the [Version] of a request. The one before, whose requests are the same, is read as well.
type RequestVersion struct{ Version }

// UnmarshalJSON implements [json.Unmarshaler].
func (v *RequestVersion) UnmarshalJSON(b []byte) error {
	if string(b) == `"nftproxy.dev/v1"` {
		return nil
	}
	return v.Version.UnmarshalJSON(b)
}

// The actions of a [Control].
const (
	ControlSet     = "set"     // the weight of a server
	ControlAdd     = "add"     // a server, if there is none
	ControlRemove  = "remove"  // a server, if there is one
	ControlDisable = "disable" // keeps new connections away from a server
	ControlEnable  = "enable"  // ends that
	ControlUndo    = "undo"    // ends changes
	ControlList    = "list"
)

// Controlled is the answer of a control socket.
type Controlled struct {
	APIVersion Version `json:"apiVersion"`
	// Error is why nothing was changed; the other fields are absent then.
	Error   string `json:"error,omitempty"`
	Changed bool   `json:"changed"`
	Balance string `json:"balance,omitempty"` // namespace/name
	// Steps are what the action has changed, one for each server.
	Steps []ControlStep `json:"steps,omitempty"`
	// File is the file that was written, with --write.
	File string `json:"file,omitempty"`
	// Sources are the absolute paths that the daemon reads.
	Sources []string `json:"sources,omitempty"`
	// Changes are in force now: the ones of the Balance, or all.
	Changes []model.RuntimeChange `json:"changes"`
}

// ControlStep is a change of one server: from "weight 1" to "weight 3", for example.
type ControlStep struct {
	Server string `json:"server"`
	Old    string `json:"old"`
	New    string `json:"new"`
}
