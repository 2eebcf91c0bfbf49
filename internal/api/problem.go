package api

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Problem is something that is not as it should be, or an object that cannot be served
// as it asks. Reason is one word, by which problems are counted.
type Problem struct {
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Reasons of problems. The reasons of [model.Notice] come in addition.
const (
	SourceUnusable        = "SourceUnusable"      // now
	InputWarning          = "InputWarning"        // objects are used, but not as their author may expect
	NotSynced             = "NotSynced"           // the first sync is still to come
	SyncFailed            = "SyncFailed"          // the last one
	ChangesPending        = "ChangesPending"      // for too long
	AffinityFull          = "AffinityFull"        // nearly
	LimitFull             = "LimitFull"           // of clients
	RulesChanged          = "RulesChanged"        // by another program, and repaired
	DrainFileUnusable     = "DrainFileUnusable"   // its last list is in force
	DrainsUnknown         = "DrainsUnknown"       // the same, without a last list
	SettingChanged        = "SettingChanged"      // of the kernel, by nftproxy
	EndpointDrained       = "EndpointDrained"     // by the operator
	ServerChanged         = "ServerChanged"       // by a command, of a server of a Balance
	ChangesUnusable       = "ChangesUnusable"     // the file with these
	LocalhostPort         = "LocalhostPort"       // a NodePort cannot be served on localhost
	RelayPort             = "RelayPort"           // connections to Balances cannot be relayed
	RelayFull             = "RelayFull"           // a limit of relayed connections is reached
	NotAnnounced          = "NotAnnounced"        // an address of a Balance
	AddressInUse          = "AddressInUse"        // of a Balance, by another machine
	NotObserved           = "NotObserved"         // refused connections
	NoFastPath            = "NoFastPath"          // connections stay with the rules
	NoEndpoints           = "NoEndpoints"         // connections are rejected
	NoLocalEndpoints      = "NoLocalEndpoints"    // connections are dropped
	CheckFailing          = "CheckFailing"        // health checks of endpoints
	NoListenAddress       = "NoListenAddress"     // a Service listens on an interface without one
	NoMasqueradeAddress   = "NoMasqueradeAddress" // the machine lacks an address to masquerade from
	NameFailing           = "NameFailing"         // a name of servers cannot be looked up, or not used as it is
	ConnectionsRefused    = "ConnectionsRefused"  // by endpoints
	ConnectionsUnanswered = "ConnectionsUnanswered"
	ConnectionsDropped    = "ConnectionsDropped" // on this machine, behind their translation

	// Of the machine: machine.Finding has them.
	ForwardingOff       = "ForwardingOff"
	ForwardingFiltered  = "ForwardingFiltered"
	NoRoute             = "NoRoute"
	BridgeNotFiltered   = "BridgeNotFiltered"
	ConntrackFull       = "ConntrackFull" // nearly
	AddressNotAnswered  = "AddressNotAnswered"
	MasqueradePortsUsed = "MasqueradePortsUsed" // nearly all, of an address to a server
	RangeInUse          = "RangeInUse"          // a range of load balancers
)

// classes explain the reasons, the most urgent first.
var classes = []struct{ reason, text string }{
	{SourceUnusable, "what was read before stays in use"},
	{NotSynced, "no rules were applied yet"},
	{SyncFailed, "the rules could not be applied; the rules of the last good sync serve"},
	{ChangesPending, "changes wait to be applied"},
	{string(model.Quarantined), "the kernel refuses the rules for the Service: those that it had before stay, and all other Services are served"},
	{string(model.Kept), "served as an earlier run left it: correct or remove what cannot be read of the source"},
	{string(model.NotKept), "not served any more, or refused: correct or remove what cannot be read of the source"},
	{RulesChanged, "another program changed the rules within the last hour; nftproxy repaired them"},
	{AffinityFull, "further clients are served but not remembered: raise --affinity-size"},
	{LimitFull, "further clients are served without their limit: limit all clients together as well, or find who opens so many connections"},
	{ConntrackFull, "the kernel drops new connections when its table of connections is full"},
	{MasqueradePortsUsed, "new masqueraded connections to an endpoint fail when an address has no source port left for it"},
	{ForwardingOff, "connections from other machines do not reach endpoints on other machines or in pods"},
	{ForwardingFiltered, "a filter drops connections to endpoints"},
	{NoRoute, "connections to endpoints without a route fail"},
	{BridgeNotFiltered, "connections between endpoints on the same bridge fail: replies bypass the rules"},
	{AddressNotAnswered, "clients in the network of the machine get no answer when they look for an address of a Service"},
	{RangeInUse, "a range of load balancers has other addresses, which the machine would refuse"},
	{string(model.InternalError), "not served because of a bug in nftproxy: please report it"},
	{string(model.NodeUnknown), "the node has no Node object"},
	{string(model.NoNodePortAddress), "NodePorts without an address of the node"},
	{string(model.NoPingAddress), "no address of the node from which pings to Services can be answered"},
	{string(model.NodeAddress), "ranges of ports are not served on addresses of the node"},
	{LocalhostPort, "NodePorts are not served on localhost; nftproxy tries again every 30 seconds"},
	{RelayPort, "connections to Balances with relay are refused"},
	{RelayFull, "relayed connections end for new ones: those of the client with the most"},
	{NotAnnounced, "addresses of Balances with announce are not where they should be: clients may get no answer; nftproxy tries again every 2 seconds"},
	{AddressInUse, "another machine has addresses of Balances with announce: end it there, or here"},
	{NotObserved, "connections are not observed as --observe asks; the rules are not affected"},
	{NoFastPath, "--fast-path has no effect: established connections pass the rules, as without it"},
	{InputWarning, "the source has objects that do not work as written"},
	{DrainsUnknown, "the list of drained endpoints cannot be used, and no earlier one is known: no endpoint is drained"},
	{ChangesUnusable, "the file with changes of servers cannot be used: the files of the Balances alone count"},
	{DrainFileUnusable, "the list of drained endpoints as it was before stays in force"},
	{NoListenAddress, "Services listen on an interface, or a machine, that has no address for them"},
	{NoMasqueradeAddress, "the machine lacks addresses to masquerade from: the others are used, or without any, one of the outgoing interface"},
	{NoEndpoints, "connections are rejected, because no endpoint can take them"},
	{NoLocalEndpoints, "connections are dropped: the traffic policy is Local, and no endpoint on this node can take them"},
	{CheckFailing, "endpoints fail their health check"},
	{NameFailing, "names of servers cannot be looked up, or have addresses that are not used"},
	{ConnectionsDropped, "connections are lost on this machine, behind their translation: a filter drops them, or no route leads to the endpoint; \"nftproxy trace\" names the rule"},
	{ConnectionsRefused, "connections are refused: see whether a program listens on the port of the endpoints, and on which addresses; where only one client fails, look at it first"},
	{ConnectionsUnanswered, "connections are not answered: see whether the endpoints run, whether a filter drops the packets, and whether their answers return through this node; where only one client fails, look at it first"},
	{string(model.NoLimits), "connection limits do not apply: the kernel lacks a module"},
	{string(model.ManyLimits), "limits per client do not apply: older Services have too many of them"},
	{string(model.ManySlots), "tables of the scheduler maglev are smaller than asked for, or replaced by source-hash: their slots have a budget"},
	{string(model.SmallTable), "the shares of endpoints differ: the table of the scheduler maglev has few slots for them"},
	{SettingChanged, "settings of the kernel that Services need, changed since nftproxy started"},
	{ServerChanged, "the file of the Balance has another value: an edit of this server there, or \"nftproxy undo\", ends the change"},
	{EndpointDrained, "the operator keeps new connections away"},
	{string(model.Conflict), "another Service has the same address and port"},
}

// ReasonText explains a reason; empty: the messages of the problems do.
func ReasonText(reason string) string {
	for _, c := range classes {
		if c.reason == reason {
			return c.text
		}
	}
	return ""
}

// rank orders reasons; others come before Services.
func rank(reason string) int {
	for i, c := range classes {
		if c.reason == reason {
			return 2 * i
		}
	}
	return 2*slices.IndexFunc(classes, func(c struct{ reason, text string }) bool { return c.reason == string(model.InternalError) }) - 1
}

// SortProblems sorts and counts the problems.
func (r *Status) SortProblems() {
	order := func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rank(a.Reason), rank(b.Reason)), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	}
	slices.SortFunc(r.Problems, order)
	slices.SortFunc(r.Notes, order)
	r.ProblemCounts = nil
	for _, p := range r.Problems {
		if r.ProblemCounts == nil {
			r.ProblemCounts = make(map[string]int)
		}
		r.ProblemCounts[p.Reason]++
	}
}

// AddProblem adds a problem that the caller has found.
func (r *Status) AddProblem(p Problem) {
	r.Problems = append(r.Problems, p)
	r.SortProblems()
}
