package model

// Reason is the class of a notice or of a problem: one word for metrics, events and the status.
type Reason string

// Reasons of notices, which a router, or the agent, has of objects that cannot be served as they ask.
const (
	NodeUnknown       Reason = "NodeUnknown"       // the source does not have this node
	Conflict          Reason = "Conflict"          // another Service has the frontend
	NoNodePortAddress Reason = "NoNodePortAddress" // no address of the node serves NodePorts
	NoPingAddress     Reason = "NoPingAddress"     // no address of the node can answer echo requests
	NodeAddress       Reason = "NodeAddress"       // a range of ports is not served on an address of the node
	NoLimits          Reason = "NoLimits"          // the kernel cannot limit connections
	ManyLimits        Reason = "ManyLimits"        // there are too many limits per client
	ManySlots         Reason = "ManySlots"         // tables of the scheduler maglev are smaller than asked for
	SmallTable        Reason = "SmallTable"        // the scheduler maglev has few slots for the endpoints
	InternalError     Reason = "InternalError"     // the Service is not served because of a bug
	Quarantined       Reason = "Quarantined"       // the kernel refuses the rules for the Service
	Kept              Reason = "Kept"              // an earlier run has left its rules, and it may be in what could not be read
	NotKept           Reason = "NotKept"           // the same, and it is not served as before
)

// Reasons of the problems that the other parts of a node find.
const (
	SourceUnusable        Reason = "SourceUnusable"      // now
	InputWarning          Reason = "InputWarning"        // objects are used, but not as their author may expect
	NotSynced             Reason = "NotSynced"           // the first sync is still to come
	SyncFailed            Reason = "SyncFailed"          // the last one
	ChangesPending        Reason = "ChangesPending"      // for too long
	AffinityFull          Reason = "AffinityFull"        // nearly
	LimitFull             Reason = "LimitFull"           // of clients
	RulesChanged          Reason = "RulesChanged"        // by another program, and repaired
	DrainFileUnusable     Reason = "DrainFileUnusable"   // its last list is in force
	DrainsUnknown         Reason = "DrainsUnknown"       // the same, without a last list
	SettingChanged        Reason = "SettingChanged"      // of the kernel, by nftproxy
	EndpointDrained       Reason = "EndpointDrained"     // by the operator
	ServerChanged         Reason = "ServerChanged"       // by a command, of a server of a Balance
	ChangesUnusable       Reason = "ChangesUnusable"     // the file with these
	LocalhostPort         Reason = "LocalhostPort"       // a NodePort cannot be served on localhost
	UnusableRelayPort     Reason = "RelayPort"           // connections to Balances cannot be relayed
	RelayFull             Reason = "RelayFull"           // a limit of relayed connections is reached
	NotAnnounced          Reason = "NotAnnounced"        // an address of a Balance
	AddressInUse          Reason = "AddressInUse"        // of a Balance, by another machine
	NotObserved           Reason = "NotObserved"         // refused connections
	NoFastPath            Reason = "NoFastPath"          // connections stay with the rules
	LacksEndpoints        Reason = "NoEndpoints"         // connections are rejected
	LacksLocalEndpoints   Reason = "NoLocalEndpoints"    // connections are dropped
	CheckFailing          Reason = "CheckFailing"        // health checks of endpoints
	NoListenAddress       Reason = "NoListenAddress"     // a Service listens on an interface without one
	NoMasqueradeAddress   Reason = "NoMasqueradeAddress" // the machine lacks an address to masquerade from
	NameFailing           Reason = "NameFailing"         // a name of servers cannot be looked up, or not used as it is
	ConnectionsRefused    Reason = "ConnectionsRefused"  // by endpoints
	ConnectionsUnanswered Reason = "ConnectionsUnanswered"
	ConnectionsDropped    Reason = "ConnectionsDropped" // on this machine, behind their translation

	// Of the machine: package machine finds them.
	ForwardingOff       Reason = "ForwardingOff"
	ForwardingFiltered  Reason = "ForwardingFiltered"
	NoRoute             Reason = "NoRoute"
	BridgeNotFiltered   Reason = "BridgeNotFiltered"
	ConntrackFull       Reason = "ConntrackFull" // nearly
	AddressNotAnswered  Reason = "AddressNotAnswered"
	MasqueradePortsUsed Reason = "MasqueradePortsUsed" // nearly all, of an address to a server
	RangeInUse          Reason = "RangeInUse"          // a range of load balancers
)
