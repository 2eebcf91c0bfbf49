package setting

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// All are the settings, in the order of pages and reports.
var All = []*Setting{
	Description, Ports, Scheduler, MaglevSize, ZoneFloor, Affinity, AllowedClients, DeniedClients, ClientAddresses, MasqueradeFrom,
	ofLimits[model.LimitConnections], ofLimits[model.LimitClientConnections], ofLimits[model.LimitRate], ofLimits[model.LimitClientRate],
	Check, OnFailure, SlowStart, Relay, Timeout, Announce, EndpointsFrom, Observe, FastPath,
}

// Stated are the settings that no rule shows, as texts. Reports have them if they read the objects.
type Stated struct {
	Description string `json:"description,omitempty"` // a line of text for people
	// Check is how the health of endpoints is checked; absent without a check.
	Check string `json:"check,omitempty"`
	// MasqueradeFrom are addresses of this machine that masquerading takes in turn; absent: one of the
	// outgoing interface, or as the configuration of the node says.
	MasqueradeFrom string `json:"masqueradeFrom,omitempty"`
	// OnFailure is keep or close; absent: as the configuration of the node says.
	OnFailure string `json:"onFailure,omitempty"`
	// SlowStart is the time in which an endpoint gets its whole weight; absent: none.
	SlowStart string `json:"slowStart,omitempty"`
	// Relay is true or proxy-v2; absent: rules send connections to servers.
	Relay string `json:"relay,omitempty"`
	// Timeout is the time without data after which a relayed connection is closed; absent: an hour.
	RelayTimeout string `json:"timeout,omitempty"`
	// Announce is the interface that has the addresses while a server is usable; absent: none.
	Announce      string `json:"announce,omitempty"`
	EndpointsFrom string `json:"endpointsFrom,omitempty"` // namespace/name of a Service of the cluster
	// ZoneFloor is the share of all ready endpoints from which on the endpoints of a zone serve its clients alone.
	ZoneFloor string `json:"zoneFloor,omitempty"`
	// Observe is connections; absent: as the configuration of the node says.
	Observe string `json:"observe,omitempty"`
	// FastPath is use or avoid; absent: as the configuration of the node says.
	FastPath string `json:"fastPath,omitempty"`
}

var Description = &Setting{
	Label: "description", at: "Description", Kind: "description", Annotation: Domain + "description", Field: "description",
	Meaning: "line of text for people, which describe and status show",
	More:    ", at most 200 characters ([1.59](behaviour.md#s1.59))",
	Value:   "text", Examples: []string{"shop, front end"}, Default: "none",
	Schema: map[string]any{"type": "string", "minLength": 1, "maxLength": budget.Description},
}

// parseDescription reads a text that its author may have chosen to mislead readers: no
// character moves a cursor, begins a line or is invisible.
func parseDescription(text string) (line, problem string) {
	text = strings.TrimSpace(text)
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case text == "":
		return "", "is empty: write a line of text"
	case utf8.RuneCountInString(text) > budget.Description:
		return "", fmt.Sprintf("is longer than %d characters: shorten it", budget.Description)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unprintable):
		return "", "has a line break, or another character that cannot be printed: write one line of text"
	}
	return strings.Clone(text), "" // the value may be far longer
}

var Ports = &Setting{
	Label: "ports", at: "Ranges", Kind: "frontends", Annotation: Domain + "ports", Examples: []string{"10000-20000/udp", "all"},
	Meaning: "ports in addition to the Service's own: single ones, ranges, or the whole address",
	More:    " ([ports and whole addresses](annotations.md#ports-and-whole-addresses))",
}

var Scheduler = &Setting{
	Label: "scheduler", at: "Scheduler", Kind: "scheduler", Annotation: Domain + "scheduler", Field: "scheduler",
	Meaning: "how new connections are spread over the endpoints; by default as --scheduler of nftproxy run says",
	More:    " ([which one](schedulers.md))",
	Value:   "name", Words: model.SchedulerNames, Default: "default",
}

var MaglevSize = &Setting{
	Label: "maglev table", at: "MaglevSize", Kind: "scheduler", Annotation: Domain + "maglev-table-size", Field: "maglevTableSize",
	Meaning: "slots that the schedulers maglev and maglev-port spread over the endpoints",
	More:    "; one of ten sizes, 1021 by default, and at most 16,384 for all frontends of a Service ([the table](schedulers.md#the-table), [3.47](behaviour.md#s3.47))",
	Value:   "number", Form: Raw, Examples: []string{"251", "131071"}, Default: "default",
	Connections: "most clients get another endpoint with their next connection",
	Schema:      map[string]any{"enum": model.MaglevSizes, "default": model.DefaultMaglevSize},
	wrong:       "is not the size of a table: " + "use " + joinWords(strings.Fields(strings.Trim(fmt.Sprint(model.MaglevSizes), "[]")), "or"), numbers: model.MaglevSizes,
}

var ZoneFloor = &Setting{ // backends of a Balance have no zones
	Label: "zone floor", at: "ZoneFloor", Kind: "zoneFloor", Annotation: Domain + "zone-floor",
	Meaning:  "share of all ready endpoints from which on the endpoints in the zone of a node serve its clients alone; below it, endpoints of other zones get the rest",
	More:     ", 1% to 100% ([zones](annotations.md#zones), [3.61](behaviour.md#s3.61))",
	Examples: []string{"33%", "25"}, Default: "none",
	wrong: "is not a share of the endpoints: use 1% to 100%, without a fraction", least: 1, most: 100, unit: "%",
}

var Affinity = &Setting{
	Label: "affinity", at: "Affinity", Kind: "affinity", Field: "affinity", // Kubernetes has spec.sessionAffinity
	Meaning: "how long a client stays with its endpoint, at all ports, after its last new connection, 1s to 24h; by default not at all",
	Value:   "time", Examples: []string{"10m"}, Default: "none",
	Schema: map[string]any{"type": "string", "pattern": DurationPattern},
	wrong:  "is not the time that a client stays: use whole seconds, 1s to 24h", most: int64(24 * time.Hour), // the longest time that the API server accepts
}

var AllowedClients = &Setting{
	// A Balance has the clients of load balancer addresses, which Kubernetes calls
	// loadBalancerSourceRanges; the annotation is for all addresses.
	Label: "allowed clients", at: "Sources.Allowed", Kind: "sourceRanges", Annotation: model.SourceRangesAnnotation, Field: "clients",
	Meaning: "ranges and addresses of allowed clients; by default all",
	More:    " ([who may connect](annotations.md#who-may-connect), [1.46](behaviour.md#s1.46))",
	Value:   "list", Form: List, Examples: []string{"10.0.0.0/8,192.0.2.7"}, Default: "all",
	Schema: OneOrMany(addressSchema("range or address of allowed clients", "(/[0-9]+)?"), 0),
}

var DeniedClients = &Setting{
	Label: "denied clients", at: "Sources.Denied", Kind: "deniedSources", Annotation: model.DeniedSourcesAnnotation, Field: "deny",
	Meaning: "ranges and addresses of denied clients, even if they are allowed",
	More:    " ([4.76](behaviour.md#s4.76))",
	Value:   "list", Form: List, Examples: []string{"10.1.2.0/24"}, Default: "none",
	Schema: OneOrMany(addressSchema("range or address of denied clients", "(/[0-9]+)?"), 0),
}

// Limits are all limits as a field of a Balance, and as a flag. It is none of [All].
var Limits = &Setting{
	Label: "limits", Kind: "limits", Field: "limits",
	Meaning: "connection limits for each address and port; more are dropped",
	Value:   "fields", Form: Raw, Examples: []string{"{connections: 1000, ratePerClient: 10/second}"},
}

var ofLimits = [...]*Setting{
	model.LimitConnections: limitRow(&Setting{
		Label: "connections", at: "Limits.Connections", Annotation: Domain + "max-connections", Field: "limits.connections",
		Meaning: "most concurrent connections to each address and port", More: " ([limits](annotations.md#limits))",
		Examples: []string{"1000"},
	}),
	model.LimitClientConnections: limitRow(&Setting{
		Label: "connections per client", at: "Limits.ConnectionsPerClient", Annotation: Domain + "max-connections-per-client", Field: "limits.connectionsPerClient",
		Meaning:  "most concurrent connections from one address of a client",
		Examples: []string{"20"},
	}),
	model.LimitRate: limitRow(&Setting{
		Label: "connection rate", at: "Limits.Rate", Annotation: Domain + "connection-rate", Field: "limits.rate",
		Meaning:  "most new connections in a second, minute or hour to each address and port, and how many may come together",
		Examples: []string{"100/second", "100/second burst 20"},
	}),
	model.LimitClientRate: limitRow(&Setting{
		Label: "connection rate per client", at: "Limits.RatePerClient", Annotation: Domain + "connection-rate-per-client", Field: "limits.ratePerClient",
		Meaning:  "most new connections from one address of a client in a second, minute or hour",
		Examples: []string{"5/minute"},
	}),
}

// OfLimit returns the setting of a limit.
func OfLimit(k model.LimitKind) *Setting { return ofLimits[k] }

func limitRow(s *Setting) *Setting {
	s.Kind, s.Default, s.Connections = "limits", "none", "they stay, and are not counted"
	s.least, s.most, s.wrong = 1, budget.Connections, fmt.Sprintf("is not a number of connections: use 1 to %d", budget.Connections)
	s.Schema = map[string]any{"type": "integer", "minimum": s.least, "maximum": s.most}
	if strings.HasPrefix(s.at, "Limits.Rate") {
		s.Schema = map[string]any{"type": "string", "pattern": ratePattern}
	}
	return s
}

var ClientAddresses = &Setting{
	Label: "client addresses", at: "ClientAddresses", Kind: "clientAddresses", Annotation: Domain + "client-addresses", Field: "clientAddresses",
	Meaning: "whether endpoints see the addresses of clients: with keep they do, and answers must return through this machine; with masquerade, the default of a Balance, they see an address of this machine",
	More:    " ([1.42](behaviour.md#s1.42))",
	Value:   "word", Words: model.ClientAddressesNames, Default: "default",
	Connections: "established connections keep theirs",
	sentences: map[string]string{
		model.KeepClientAddresses.String():       "kept: answers of endpoints must return through this machine",
		model.MasqueradeClientAddresses.String(): "masqueraded: endpoints see an address of this machine",
	},
}

// MasqueradeFrom has no annotation: each node has other addresses.
var MasqueradeFrom = &Setting{
	Label: "masquerade from", at: "MasqueradeFrom", Kind: "masqueradeFrom", Field: "masqueradeFrom",
	Meaning: "addresses of this machine that endpoints see in place of the client's, one after the other: each has room for 64,512 connections to an endpoint; by default one of the outgoing interface, or as --masquerade-from of nftproxy run says",
	More:    " ([more connections to a server](standalone.md#more-connections-to-a-server), [8.7](behaviour.md#s8.7))",
	Value:   "list", Form: List, Examples: []string{"192.0.2.1,192.0.2.2"}, Default: "default",
	Connections: "established connections keep theirs",
	Schema:      OneOrMany(addressSchema("address of this machine", ""), 0),
}

var Check = &Setting{
	Label: "health check", at: "Check", Kind: "healthCheck", Annotation: Domain + "health-check", Field: "check",
	Meaning: "health check of the endpoints: a type, or a mapping with a field named like the type",
	More:    " ([health checks](health-checks.md)); without one, an endpoint that is down keeps its share of the connections",
	Value:   "type", Form: Raw, Examples: []string{"tcp", "{http: /healthz}"}, Default: "none",
}

var OnFailure = &Setting{
	Label: "on failure", at: "OnFailure", Kind: "onFailure", Annotation: Domain + "on-failure", Field: "onFailure",
	Meaning: "whether established TCP connections to an endpoint that fails its check or leaves continue; by default as --conntrack-tcp-cleanup of nftproxy run says",
	More:    ". A drained endpoint keeps its connections ([what happens to connections](health-checks.md#what-happens-to-connections), [9.28](behaviour.md#s9.28))",
	Value:   "word", Words: model.OnFailureNames, Default: "default",
	sentences: map[string]string{
		model.KeepOnFailure.String():  "established TCP connections to an endpoint that fails or leaves are kept",
		model.CloseOnFailure.String(): "established TCP connections to an endpoint that fails or leaves are closed",
	},
}

var SlowStart = &Setting{
	Label: "slow start", at: "SlowStart", Kind: "slowStart", Annotation: Domain + "slow-start", Field: "slowStart",
	Meaning: "time in which the weight of an endpoint rises from a tenth to the whole when it returns, or is new while the Service is served, 1s to 1h; by default it has its whole weight immediately",
	More:    " ([slow start](health-checks.md#slow-start), [3.68](behaviour.md#s3.68))",
	Value:   "time", Examples: []string{"30s", "5m"}, Default: "none",
	Schema: map[string]any{"type": "string", "pattern": DurationPattern},
	// The shortest time bounds how often a slow start changes the rules of a Service.
	wrong: "is not the time of a slow start: use 1s to 1h, with its unit", most: int64(budget.SlowStart * time.Second),
}

// Relay has no annotation: the cost is a matter of this machine, not of authors of objects in an API server.
var Relay = &Setting{
	Label: "relay", at: "Relay", Kind: "relay", Field: "relay",
	Meaning: "whether nftproxy run relays each connection, at up to ten times the cost of rules: true, or proxy-v2 for a header of the PROXY protocol, version 2, to the server; a second server takes a connection that the first one refuses, and servers on 127.0.0.1 can serve",
	More:    " ([the relay](relay.md), [4.96](behaviour.md#s4.96))",
	Value:   "word", Form: Raw, Words: model.RelayNames, Default: "none",
	Schema:      map[string]any{"enum": []any{false, true, model.RelayNames[model.ProxyV2Relay-1]}},
	Connections: "established connections stay as they are",
	sentences: map[string]string{
		model.RelayNames[model.PlainRelay-1]:   "nftproxy run relays the connections, at up to ten times the cost of rules",
		model.RelayNames[model.ProxyV2Relay-1]: "nftproxy run relays the connections, at up to ten times the cost of rules, and sends servers a header of the PROXY protocol",
	},
}

// Timeout has none either: it is a setting of the relay.
var Timeout = &Setting{
	Label: "timeout", at: "RelayTimeout", Kind: "timeout", Field: "timeout",
	Meaning: "time without data in either direction after which a relayed connection is closed, 1s to 720h; by default 1h",
	More:    " ([the relay](relay.md#a-share-for-each-client), [4.48](behaviour.md#s4.48))",
	Value:   "time", Examples: []string{"5m", "12h"}, Default: "1h",
	Schema:      map[string]any{"type": "string", "pattern": DurationPattern},
	Connections: "established connections keep the time that they began with",
	// The longest time is for connections of databases over a weekend, and the kernel counts milliseconds in 32 bits.
	wrong: "is not a time without data: use 1s to 720h, with its unit", most: int64(budget.RelayTimeout * time.Hour),
}

// Announce has no annotation: authors of objects in an API server give no node an address.
var Announce = &Setting{
	Label: "announced on", at: "Announce", Kind: "announce", Field: "announce",
	Meaning: "interface that has the addresses while a server is usable, announced by gratuitous ARP and unsolicited neighbour advertisements; without it, the machine must receive the packets in another way",
	More:    " ([addresses by health](standalone.md#addresses-by-health), [10.33](behaviour.md#s10.33))",
	Value:   "interface", Examples: []string{"eth0"}, HasNone: true, Default: "none",
	Schema: map[string]any{"type": "string", "pattern": `^[^/\s]{1,15}$`},
}

// maxLinkName is the length of the name of an interface (IFNAMSIZ of linux/if.h, without its end).
const maxLinkName = 15

func parseLink(text string) (name, problem string) {
	bad := func(r rune) bool {
		return r == '/' || r > unicode.MaxASCII || !unicode.IsGraphic(r) || unicode.IsSpace(r)
	}
	if text == "" || len(text) > maxLinkName || text == "." || text == ".." || strings.ContainsFunc(text, bad) {
		return "", "is not the name of an interface: \"ip link\" lists those of this machine"
	}
	return strings.Clone(text), ""
}

var EndpointsFrom = &Setting{
	Label: "endpoints from", at: "EndpointsFrom", Kind: "endpoints", Annotation: Domain + "endpoints-from", Field: "backendsFrom",
	Meaning: "Service of the API server whose endpoints a Service of a file has, too",
	More:    " ([with an API server](api-server.md), [14.23](behaviour.md#s14.23))",
	Value:   "name", Examples: []string{"default/kubernetes"}, Default: "none",
	Schema: map[string]any{"type": "string", "pattern": `^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$`},
}

var Observe = &Setting{
	Label: "observe", at: "Observe", Kind: "observe", Annotation: Domain + "observe", Field: "observe",
	Meaning: "which connections nftproxy observe shows besides refused ones: connections stands for all of the Service, with their outcome; only on nodes that observe refused ones (--observe)",
	More:    " ([connections](observe.md#connections), [16.8](behaviour.md#s16.8))",
	Value:   "word", Words: []string{"connections"}, HasNone: true, Default: "none",
}

var FastPath = &Setting{
	Label: "fast path", at: "FastPath", Kind: "fastPath", Annotation: Domain + "fast-path", Field: "fastPath",
	Meaning: "whether established connections may go past the rules of all programs, through a flow table of the kernel: use or avoid; by default as --fast-path of nftproxy run says, which off overrules",
	More:    " ([what they skip](fast-path.md), [9.29](behaviour.md#s9.29))",
	Value:   "word", Words: model.FastPathUses, Default: "default",
	Connections: "they return to the rules, or leave them",
	sentences: map[string]string{
		model.UseFastPath.String():   "established connections may go past the rules, if --fast-path is not off",
		model.AvoidFastPath.String(): "established connections stay with the rules",
	},
}
