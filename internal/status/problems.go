package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Problem is something that is not as it should be, or an object that cannot be served
// as it asks. Reason is one word, by which problems are counted.
type Problem struct {
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Reasons of problems that this package finds. Those of [model.Notice] and of checks of
// the machine come in addition.
const (
	SourceUnusable    = "SourceUnusable"    // now
	InputWarning      = "InputWarning"      // objects are used, but not as their author may expect
	NotSynced         = "NotSynced"         // the first sync is still to come
	SyncFailed        = "SyncFailed"        // the last one
	ChangesPending    = "ChangesPending"    // for too long
	AffinityFull      = "AffinityFull"      // nearly
	RulesChanged      = "RulesChanged"      // by another program, and repaired
	DrainFileUnusable = "DrainFileUnusable" // its last list is in force
	DrainsUnknown     = "DrainsUnknown"     // the same, without a last list
	SettingChanged    = "SettingChanged"    // of the kernel, by nftproxy
	EndpointDrained   = "EndpointDrained"   // by the operator
	LocalhostPort     = "LocalhostPort"     // a NodePort cannot be served on localhost
	NoEndpoints       = "NoEndpoints"       // connections are rejected
	NoLocalEndpoints  = "NoLocalEndpoints"  // connections are dropped
	CheckFailing      = "CheckFailing"      // health checks of endpoints

	// Of the machine: machine.Finding has them.
	ForwardingOff      = "ForwardingOff"
	ForwardingFiltered = "ForwardingFiltered"
	NoRoute            = "NoRoute"
	BridgeNotFiltered  = "BridgeNotFiltered"
	ConntrackFull      = "ConntrackFull" // nearly
	AddressNotAnswered = "AddressNotAnswered"
	RangeInUse         = "RangeInUse" // a range of load balancers
)

// Objects of problems that concern no object of Kubernetes.
const (
	rulesObject    = "Rules"
	sourceObject   = "Source"
	affinityObject = "Affinity map"
	machineObject  = "Machine"
)

// OfMachine returns a problem of the machine.
func OfMachine(reason, message string) Problem { return Problem{machineObject, reason, message} }

// classes explain the reasons, the most urgent first.
var classes = []struct{ reason, text string }{
	{SourceUnusable, "what was read before stays in use"},
	{NotSynced, "no rules were applied yet"},
	{SyncFailed, "the rules could not be applied; those of the last good sync serve"},
	{ChangesPending, "changes wait to be applied"},
	{string(model.Quarantined), "the kernel refuses the rules for the Service: those that it had before stay, and all other Services are served"},
	{RulesChanged, "another program changed the rules within the last hour; nftproxy repaired them"},
	{AffinityFull, "further clients are served but not remembered: raise --affinity-size"},
	{ConntrackFull, "the kernel drops new connections when its table of connections is full"},
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
	{InputWarning, "the source has objects that do not work as written"},
	{DrainsUnknown, "the list of drained endpoints cannot be used, and no earlier one is known: no endpoint is drained"},
	{DrainFileUnusable, "the list of drained endpoints as it was before stays in force"},
	{NoEndpoints, "connections are rejected, because no endpoint can take them"},
	{NoLocalEndpoints, "connections are dropped: the traffic policy is Local, and no endpoint on this node can take them"},
	{CheckFailing, "endpoints fail their health check"},
	{string(model.NoLimits), "connection limits do not apply: the kernel lacks a module"},
	{string(model.ManyLimits), "limits per client do not apply: older Services have too many different values"},
	{string(model.ManySlots), "tables of the scheduler maglev are smaller than asked for, or replaced by source-hash: their slots have a budget"},
	{string(model.SmallTable), "the shares of endpoints differ: the table of the scheduler maglev has few slots for them"},
	{SettingChanged, "settings of the kernel that Services need, changed since nftproxy started"},
	{EndpointDrained, "the operator keeps new connections away"},
	{string(model.Conflict), "another Service has the same address and port"},
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

// longPending is how long changes may wait before that is a problem.
const longPending = time.Minute

// addProblems adds what follows from the rest of the report, and sorts all problems.
func (r *Report) addProblems(now time.Time) {
	add := func(object, reason, format string, args ...any) {
		r.Problems = append(r.Problems, Problem{object, reason, fmt.Sprintf(format, args...)})
	}
	if e := r.SourceError; e != nil {
		add(sourceObject, SourceUnusable, "%s", e.Message)
	}
	for _, w := range r.Warnings {
		add(sourceObject, InputWarning, "%s", w)
	}
	if r.From == Daemon {
		switch s := r.LastSync; {
		case s == nil && !r.PostponedUntil.IsZero():
			add(rulesObject, NotSynced, "the source is read at %s (--start-jitter); the rules of an earlier run serve", r.PostponedUntil.Format(time.TimeOnly))
		case s == nil:
			add(rulesObject, NotSynced, "waiting for the source")
		case s.Error != "":
			add(rulesObject, SyncFailed, "%s", s.Error)
		}
		if wait := now.Sub(r.PendingSince).Round(time.Second); !r.PendingSince.IsZero() && wait >= longPending {
			add(rulesObject, ChangesPending, "for %s", wait)
		}
	}
	if c := r.RulesChanged; c != nil && now.Sub(c.Last) < recently {
		add(rulesObject, RulesChanged, "%s", c.text(now))
	}
	for _, a := range r.Affinity {
		if a.Clients >= a.Size/10*9 {
			add(affinityObject+" of "+a.name(), AffinityFull, "%s of %d clients are remembered", a.count(), a.Size)
		}
	}
	r.sortProblems()
}

func (r *Report) sortProblems() {
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

// judge adds the problem of a service port whose connections are rejected or dropped.
func (r *Report) judge(port []frontend) {
	var rejecting, dropping, droppingOutside []*frontend
	for i := range port {
		switch f := &port[i]; {
		case f.Inside.Verdict == model.Reject:
			rejecting = append(rejecting, f)
		case f.Inside.Verdict == model.Drop:
			dropping = append(dropping, f)
		case f.outside() != nil && f.Outside.Verdict == model.Drop:
			droppingOutside = append(droppingOutside, f)
		}
	}
	problem := func(reason, why string, all []*frontend) Problem {
		return Problem{port[0].Port.Service.Object().String(), reason, addressed(all) + portText(port[0].Port.Port) + why}
	}
	if len(rejecting) > 0 {
		r.Problems = append(r.Problems, problem(NoEndpoints, r.noEndpoint(rejecting[0].known), rejecting))
	}
	if len(dropping) > 0 {
		r.Problems = append(r.Problems, problem(NoLocalEndpoints, r.noEndpoint(dropping[0].known), dropping))
	}
	if len(droppingOutside) > 0 {
		r.Notes = append(r.Notes, problem(NoLocalEndpoints, "", droppingOutside))
	}
}

func portText(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" (port %q)", name)
}

// noEndpoint returns how many endpoints a frontend has; known is their number, if the
// report is from a daemon.
func (r *Report) noEndpoint(known int) string {
	switch {
	case r.From == Kernel:
		return ""
	case known == 0:
		return ": it has no endpoints"
	case known == 1:
		return ": its only endpoint takes none"
	}
	return fmt.Sprintf(": none of its %d endpoints takes any", known)
}

// addressed names the first frontend and counts the others.
func addressed(all []*frontend) string {
	text := all[0].Frontend.Frontend.String()
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// affected returns the objects that have a problem or a note.
func (r *Report) affected() map[string]bool {
	out := make(map[string]bool)
	for _, list := range [][]Problem{r.Problems, r.Notes} {
		for _, p := range list {
			out[p.Object] = true
		}
	}
	return out
}

// selectProblems removes those of Services that a filter does not select.
func (r *Report) selectProblems(filter *Filter) {
	if filter.Selects() {
		r.FailingServers = nil
	}
	r.Problems = slices.DeleteFunc(r.Problems, func(p Problem) bool {
		name, isService := strings.CutPrefix(p.Object, "Service ")
		namespace, name, _ := strings.Cut(name, "/")
		return isService && !filter.matches(model.ServiceName{Namespace: namespace, Name: name})
	})
}
