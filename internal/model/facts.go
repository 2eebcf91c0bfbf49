package model

import (
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/words"
)

// ServiceRef names a Service in the facts that documents have. Features of a process know them, and with them a dry run
// on the same objects comes to the same rules.
type ServiceRef struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
}

// Ref returns the name as facts have it.
func (n ServiceName) Ref() ServiceRef { return ServiceRef{n.Namespace, n.Name} }

// ServiceName returns the name.
func (r ServiceRef) ServiceName() ServiceName { return ServiceName{r.Namespace, r.Service} }

// FailingCheck is an endpoint of a Service that fails its check.
type FailingCheck struct {
	ServiceRef
	Endpoint netip.AddrPort `json:"endpoint"` // as it is checked
	Protocol string         `json:"protocol,omitempty"`
	// Check identifies how it is checked: another Service with the same one has the same
	// result. Versions of nftproxy need not agree on it.
	Check string `json:"check"`
}

// StartingEndpoint is an endpoint of a Service that starts slowly.
type StartingEndpoint struct {
	ServiceRef
	// Endpoint has port 0 where it stands for all ports of a range.
	Endpoint netip.AddrPort `json:"endpoint"`
	Part     uint8          `json:"part"` // of its weight, in tenths
}

// ResolvedName has the addresses that a name of DNS has as a server of a Service.
type ResolvedName struct {
	ServiceRef
	Name      string         `json:"name"`
	Addresses []NamedAddress `json:"addresses"`
}

// AnnouncedAddress is an address that Balances ask for on an interface.
type AnnouncedAddress struct {
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	// Usable reports whether the interface is up and has the address.
	Usable bool `json:"usable"`
	// Reason is why it does not; absent: it does.
	Reason string `json:"reason,omitempty"`
}

// ServiceText names a Service as one text.
type ServiceText struct {
	Service string `json:"service"`           // namespace/name
	Balance bool   `json:"balance,omitempty"` // it comes from a Balance
}

// Text returns the name as one text.
func (n ServiceName) Text(isBalance bool) ServiceText { return ServiceText{n.String(), isBalance} }

// Object returns the object of the Service, as messages name it.
func (s ServiceText) Object() string {
	namespace, name, _ := strings.Cut(s.Service, "/")
	return ServiceName{namespace, name}.ObjectAs(s.Balance).String()
}

// Drains is what a daemon says about drained endpoints.
type Drains struct {
	File  string `json:"file"`            // that the daemon follows; empty: none
	State string `json:"state,omitempty"` // directory of the copy; empty: the directory of the file
	// Error is why the file cannot be used since then. Its last list is in force, unless
	// none is known.
	Error   string    `json:"error,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Unknown bool      `json:"unknown,omitempty"`
	// Pending reports that changes of the list wait to be applied to the kernel.
	Pending bool         `json:"pending"`
	Drained []DrainEntry `json:"drained"` // the list in force
	// Words are the words for all that the node serves: balance, mixed, or absent for Services.
	Words words.Vocabulary `json:"words,omitzero"`
	Asked []Asked          `json:"asked,omitempty"`
	// Endpoints are those that the question "begin" selects.
	Endpoints []string `json:"endpoints,omitempty"`
}

// DrainEntry is an entry of the list in force.
type DrainEntry struct {
	Endpoint string    `json:"endpoint"`
	Service  string    `json:"service,omitempty"` // empty: all
	Since    time.Time `json:"since,omitzero"`
}

// Asked is a target and the Services that have it.
type Asked struct {
	Endpoint string   `json:"endpoint"`
	Service  string   `json:"service,omitempty"`
	Services []Effect `json:"services,omitempty"`
	// Unknown says, in words, that Service is not the name of a Service here.
	Unknown string `json:"unknown,omitempty"`
	// DidYouMean are similar endpoints, if no Service has this one.
	DidYouMean []string `json:"didYouMean,omitempty"`
}

// Effect is the effect of draining a target on a Service, together with all others that are
// asked about and with the list.
type Effect struct {
	ServiceText
	Endpoints int `json:"endpoints"` // of the service port that has the fewest left
	Left      int `json:"left"`      // of them take new connections then
	// Stops is the verdict on new connections that are forwarded now: reject or drop.
	Stops string `json:"stops,omitempty"`
	// Drained reports that no rule leads new connections to the target.
	Drained bool `json:"drained"`
	// Relayed reports that connections to the target come from this machine, which relays them.
	Relayed bool `json:"relayed,omitempty"`
	// Frontends are the addresses of the Service: "tcp 203.0.113.10:443".
	Frontends []string `json:"frontends"`
}

// RuntimeChange is a change of a server of a Balance that the file of the Balance does not have.
type RuntimeChange struct {
	Balance string `json:"balance"` // namespace/name
	Server  string `json:"server"`
	// Weight is the weight now; absent: the server is removed.
	Weight *int `json:"weight,omitempty"`
	// FileWeight is the weight in the file when the change was made; absent: the server was
	// not in the file.
	FileWeight *int      `json:"fileWeight,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	By         string    `json:"by,omitempty"` // user and process
}

// InForce is a file that is not used as it is (12.82), and the content that is served in its place.
type InForce struct {
	Path string `json:"path"` // absolute, as the process sees it
	// Sum is the SHA-256 of the content that is not used; empty: the file cannot be read.
	Sum     string `json:"sum,omitempty"`
	Problem string `json:"problem"`
	// Objects is a List with the objects of the last valid content, without comments and
	// objects of other kinds. Nil: there is none, and the file is left out.
	Objects json.RawMessage `json:"objects,omitempty"`
}
