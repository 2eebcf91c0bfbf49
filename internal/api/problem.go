package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Problem is something that is not as it should be, or an object that cannot be served
// as it asks. Reason is one word, by which problems are counted.
type Problem = model.Notice

// Problems are read up to a limit.
type Problems []Problem

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Problems) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.Join(errors.New("problems: not a list"), err)
	}
	*p = nil
	for d.More() {
		if len(*p) == budget.AnswerProblems {
			return fmt.Errorf("too many problems: at most %d are read", budget.AnswerProblems)
		}
		var one Problem
		if err := d.Decode(&one); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	return nil
}

type explained struct {
	reason model.Reason
	text   string
}

// classes explain the reasons, the most urgent first.
var classes = []explained{
	{model.SourceUnusable, "what was read before stays in use"},
	{model.NotSynced, "no rules were applied yet"},
	{model.SyncFailed, "the rules could not be applied; the rules of the last good sync serve"},
	{model.ChangesPending, "changes wait to be applied"},
	{model.Quarantined, "the kernel refuses the rules for the Service: those that it had before stay, and all other Services are served"},
	{model.Kept, "served as an earlier run left it: correct or remove what cannot be read of the source"},
	{model.NotKept, "not served any more, or refused: correct or remove what cannot be read of the source"},
	{model.RulesChanged, "another program changed the rules within the last hour; nftproxy repaired them"},
	{model.AffinityFull, "further clients are served but not remembered: raise --affinity-size"},
	{model.LimitFull, "further clients are served without their limit: limit all clients together as well, or find who opens so many connections"},
	{model.ConntrackFull, "the kernel drops new connections when its table of connections is full"},
	{model.MasqueradePortsUsed, "new masqueraded connections to an endpoint fail when an address has no source port left for it"},
	{model.ForwardingOff, "connections from other machines do not reach endpoints on other machines or in pods"},
	{model.ForwardingFiltered, "a filter drops connections to endpoints"},
	{model.NoRoute, "connections to endpoints without a route fail"},
	{model.BridgeNotFiltered, "connections between endpoints on the same bridge fail: replies bypass the rules"},
	{model.AddressNotAnswered, "clients in the network of the machine get no answer when they look for an address of a Service"},
	{model.RangeInUse, "a range of load balancers has other addresses, which the machine would refuse"},
	{model.InternalError, "not served because of a bug in nftproxy: please report it"},
	{model.NodeUnknown, "the node has no Node object"},
	{model.NoNodePortAddress, "NodePorts without an address of the node"},
	{model.NoPingAddress, "no address of the node from which pings to Services can be answered"},
	{model.NodeAddress, "ranges of ports are not served on addresses of the node"},
	{model.LocalhostPort, "NodePorts are not served on localhost; nftproxy tries again every 30 seconds"},
	{model.UnusableRelayPort, "connections to Balances with relay are refused"},
	{model.RelayFull, "relayed connections end for new ones: those of the client with the most"},
	{model.NotAnnounced, "addresses of Balances with announce are not where they should be: clients may get no answer; nftproxy tries again every 2 seconds"},
	{model.AddressInUse, "another machine has addresses of Balances with announce: end it there, or here"},
	{model.NotObserved, "connections are not observed as --observe asks; the rules are not affected"},
	{model.NoFastPath, "--fast-path has no effect: established connections pass the rules, as without it"},
	{model.InputWarning, "the source has objects that do not work as written"},
	{model.DrainsUnknown, "the list of drained endpoints cannot be used, and no earlier one is known: no endpoint is drained"},
	{model.ChangesUnusable, "the file in which version 0.2 kept changes of servers cannot be used: they do not count"},
	{model.DrainFileUnusable, "the list of drained endpoints as it was before stays in force"},
	{model.NoListenAddress, "Services listen on an interface, or a machine, that has no address for them"},
	{model.NoMasqueradeAddress, "the machine lacks addresses to masquerade from: the others are used, or without any, one of the outgoing interface"},
	{model.LacksEndpoints, "connections are rejected, because no endpoint can take them"},
	{model.LacksLocalEndpoints, "connections are dropped: the traffic policy is Local, and no endpoint on this node can take them"},
	{model.CheckFailing, "endpoints fail their health check"},
	{model.NameFailing, "names of servers cannot be looked up, or have addresses that are not used"},
	{model.ConnectionsDropped, "connections are lost on this machine, behind their translation: a filter drops them, or no route leads to the endpoint; \"nftproxy trace\" names the rule"},
	{model.ConnectionsRefused, "connections are refused: see whether a program listens on the port of the endpoints, and on which addresses; where only one client fails, look at it first"},
	{model.ConnectionsUnanswered, "connections are not answered: see whether the endpoints run, whether a filter drops the packets, and whether their answers return through this node; where only one client fails, look at it first"},
	{model.NoLimits, "connection limits do not apply: the kernel lacks a module"},
	{model.ManyLimits, "limits per client do not apply: older Services have too many of them"},
	{model.ManySlots, "tables of the scheduler maglev are smaller than asked for, or replaced by source-hash: their slots have a budget"},
	{model.SmallTable, "the shares of endpoints differ: the table of the scheduler maglev has few slots for them"},
	{model.SettingChanged, "settings of the kernel that Services need, changed since nftproxy started"},
	{model.ServerChanged, "the file of the Balance has another value: an edit of this server there, or \"nftproxy undo\", ends the change"},
	{model.EndpointDrained, "the operator keeps new connections away"},
	{model.Conflict, "another Service has the same address and port"},
}

// ReasonText explains a reason; empty: the messages of the problems do.
func ReasonText(reason model.Reason) string {
	if i := classOf(reason); i >= 0 {
		return classes[i].text
	}
	return ""
}

func classOf(reason model.Reason) int {
	return slices.IndexFunc(classes, func(c explained) bool { return c.reason == reason })
}

// rank orders reasons; others come before Services.
func rank(reason model.Reason) int {
	if i := classOf(reason); i >= 0 {
		return 2 * i
	}
	return 2*classOf(model.InternalError) - 1
}

// SortProblems sorts and counts the problems.
func (r *Status) SortProblems() {
	order := func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rank(a.Reason), rank(b.Reason)), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Message, b.Message))
	}
	slices.SortFunc(r.Problems, order)
	slices.SortFunc(r.Notes, order)
	r.ProblemCounts = nil
	for _, p := range r.Problems {
		if r.ProblemCounts == nil {
			r.ProblemCounts = make(map[model.Reason]int)
		}
		r.ProblemCounts[p.Reason]++
	}
}

// AddProblem adds a problem that the caller has found.
func (r *Status) AddProblem(n model.Notice) {
	r.Problems = append(r.Problems, n)
	r.SortProblems()
}
