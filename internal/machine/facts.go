package machine

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Facts are the settings, rules and routes of a machine that were read.
type Facts struct {
	Kernel string // release
	// Missing are features of the kernel that the rules need, with remedies, and
	// Ownership reports that tables can have an owner.
	Missing   []string
	Ownership bool

	Forwarding  map[model.Family]Forwarding // of the families that the kernel has
	StrictPath  []string                    // interfaces with the reverse path filter (IPv4) in strict mode
	Uplinks     []string                    // interfaces of IPv4 default routes
	PolicyRules int                         // of IPv4 routing, in addition to the kernel's
	Interfaces  []string
	Addresses   []netip.Addr
	Assigned    []Assigned   // the same, with interfaces
	Proxied     []netip.Addr // IPv6 addresses that it answers neighbours for
	StrictARP   []string     // interfaces that do not answer for addresses of others (IPv4)
	Router      Router       // nil: not known
	Bridges     []Bridge
	BridgeNF    map[model.Family]bool // bridged packets pass the rules
	Conntrack   Conntrack

	Ports   *conntrack.Ports // that masqueraded connections use; nil: not known
	Sourced []Sourced

	Chains     []Chain  // of nf_tables, without ours
	FlowTables []string // names with family and table
	// HardwareFlowTables are those of them that network devices may take connections from.
	HardwareFlowTables []string

	Owner host.Process // of our tables, if they have one that is visible

	Legacy []LegacyTable

	Processes []host.Process // of programs that matter
	// AllProcesses reports that all processes of the machine are visible.
	AllProcesses bool

	// LogReaders are the processes that read groups of nflog, without nftproxy.
	LogReaders map[uint16]host.Process

	// Hidden are the groups of facts that could not be read, and why.
	Hidden map[Group]error
}

// Router answers questions about routes.
type Router interface {
	// Routed reports whether a route leads to an address.
	Routed(netip.Addr) bool
	// Local reports whether an IPv4 address belongs to this machine by a route of type local.
	Local(netip.Addr) bool
}

// Group is a group of facts that are read together.
type Group string

const (
	Features   Group = "features"
	Settings   Group = "settings"
	Links      Group = "links"
	Routes     Group = "routes"
	Neighbours Group = "neighbours"
	NFTables   Group = "nftables"
	IPTables   Group = "iptables-legacy"
	ProcessSet Group = "processes"
	LogGroups  Group = "nflog"
)

// Forwarding has the settings about forwarding in a family.
type Forwarding struct {
	On  bool
	Off []string // interfaces that are excepted: packets that arrive there are not forwarded (IPv4)
}

// Bridge is an interface with ports.
type Bridge struct {
	Name     string
	Ports    int
	Networks []netip.Prefix
}

// Conntrack is the use of connection tracking. Max is zero while its module is not
// loaded.
type Conntrack struct{ Count, Max, Buckets int }

// LegacyTable is a table of iptables-legacy.
type LegacyTable struct {
	Name          string // with the prefix of the command, such as "ip6 filter"
	KubeProxy     bool   // it has chains of kube-proxy
	ForwardDrops  bool   // the policy of FORWARD is DROP
	ForwardAccept bool   // FORWARD has rules, which may accept
}

// Chain is a chain of nf_tables with the rules of it that were read.
type Chain struct {
	Family   string // ip, ip6, inet, ...
	Table    string
	Name     string
	Type     string // of a base chain: filter, nat or route
	Hook     Hook
	Priority int32
	Drops    bool // the policy is drop
	Rules    []Rule
	// Unread reports that the chain is reached, and that its rules were not read because
	// there are too many chains.
	Unread bool
}

// Hook is where a base chain sees packets.
type Hook uint8

const (
	NoHook Hook = iota
	Prerouting
	Forward
	Output
	OtherHook
)

// Rule has the conditions and the verdict of a rule.
type Rule struct {
	Verdict Verdict
	To      string // chain of a jump
	When    []Condition
	NoTrack bool // exempts packets from connection tracking
	NAT     bool // translates addresses
}

// Verdict is the verdict of a rule on a packet that meets all conditions.
type Verdict uint8

const (
	Continue Verdict = iota
	Accept
	Drop // or reject
	Jump // or goto
	Return
	Unknown // a verdict map, or a target of iptables
)

// Condition is one condition of a rule.
type Condition struct {
	Kind   Kind
	Prefix netip.Prefix // of Source and Destination
	Name   string       // of Interface
	States uint32       // of State: bits of conntrack, as nft has them
	Number uint8        // of Protocol and Family
}

// Kind is the field that a condition is about.
type Kind uint8

const (
	Other       Kind = iota // anything that is not understood
	Source                  // address
	Destination             // address
	Interface               // either one
	State                   // of the connection
	DNAT                    // the connection is translated
	Protocol
	Family // NFPROTO_IPV4 or NFPROTO_IPV6
)

// Bits of conntrack states in [Condition].
const (
	stateInvalid     = 1
	stateEstablished = 2
	stateRelated     = 4
	stateNew         = 8
)
