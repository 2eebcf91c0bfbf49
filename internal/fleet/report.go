package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Verdict is the judgement about a node.
type Verdict string

// Verdicts, the worst first.
const (
	NoAnswer  Verdict = "no answer" // of the agent; its rules stay as they were
	NoAgent   Verdict = "no agent"  // on a node that should have one
	Unhealthy Verdict = "unhealthy" // the last sync failed, or the source cannot be used
	Behind    Verdict = "behind"    // changes of the API server are not in the rules
	NoNode    Verdict = "no node"   // the agent is on a machine without a Node object
	Problems  Verdict = "problems"  // of the machine
	Good      Verdict = "ok"
)

var verdicts = []Verdict{NoAnswer, NoAgent, Unhealthy, Behind, NoNode, Problems, Good}

func (v Verdict) rank() int { return slices.Index(verdicts, v) }

// IsWrong reports whether the rules of the node may be outdated.
func (v Verdict) IsWrong() bool { return v != Good && v != Problems }

// Report is the state of all nodes. The names of the JSON fields are stable.
type Report struct {
	APIVersion api.Version     `json:"apiVersion"`
	Asked      time.Time       `json:"asked"`
	Seconds    float64         `json:"seconds"` // that it took
	Verdicts   map[Verdict]int `json:"verdicts"`
	// Versions of nftproxy, with the number of nodes.
	Versions map[string]int `json:"versions"`
	// Newest are the objects that changed last when the nodes were asked; absent: they cannot be
	// listed, because of NewestError.
	Newest      map[string]Newest `json:"newest,omitempty"`
	NewestError string            `json:"newestError,omitempty"`
	// Services are problems of Services, with the number of nodes.
	Services []ServiceProblem `json:"services,omitempty"`
	Nodes    []NodeReport     `json:"nodes"` // the worst first
}

// NodeReport is the state of a node.
type NodeReport struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Pod     string  `json:"pod,omitempty"` // namespace/name of the agent
	// Reason is why the verdict is not ok.
	Reason        string  `json:"reason,omitempty"`
	BehindSeconds float64 `json:"behindSeconds,omitempty"`
	// Seen are the newest resourceVersions that the agent has received.
	Seen        map[string]string `json:"seen,omitempty"`
	Version     string            `json:"version,omitempty"`
	Source      string            `json:"source,omitempty"`
	LastSuccess time.Time         `json:"lastSuccess,omitzero"` // end of the last successful sync
	Problems    []api.Problem     `json:"problems,omitempty"`   // without these of Services
}

// ServiceProblem is a problem of a Service on some nodes.
type ServiceProblem struct {
	api.Problem        // as the first node says it
	Nodes       int    `json:"nodes"`
	Node        string `json:"node"` // the first one
}

// Wrong returns the number of nodes whose rules may be outdated.
func (r *Report) Wrong() (n int) {
	for v, of := range r.Verdicts {
		if v.IsWrong() {
			n += of
		}
	}
	return n
}

// maxPending is how long changes may wait for a sync before a node is behind.
const maxPending = 10 * time.Second

// Judge judges the answers of agents, at a time. newest are objects that changed before they were
// asked; nil: not known. With all, the list of nodes is complete.
func Judge(now time.Time, nodes []Node, answers []Answer[api.Status], newest map[string]Newest, all bool) *Report {
	r := &Report{Asked: now, Newest: newest, Verdicts: make(map[Verdict]int), Versions: make(map[string]int)}
	services := make(map[[2]string]*ServiceProblem)
	seen := make(map[string]bool)
	for i := range answers {
		a := &answers[i]
		if a.Err != nil && answered(answers, a.Agent.Node) {
			continue // a pod that another one replaces
		}
		known := Known(nodes, a.Agent.Node)
		if !known && !all { // it is not selected
			continue
		}
		seen[a.Agent.Node] = true
		n := judge(a, known)
		if a.Document != nil {
			n.lag(now, a.Document, newest)
			r.Versions[n.Version]++
			collect(services, n.Name, a.Document)
		}
		r.Nodes = append(r.Nodes, n)
	}
	for i := range nodes {
		if n := &nodes[i]; n.Wanted && !seen[n.Name] {
			r.Nodes = append(r.Nodes, NodeReport{Name: n.Name, Verdict: NoAgent, Reason: "no pod of nftproxy is on the node"})
		}
	}
	for _, p := range services {
		r.Services = append(r.Services, *p)
	}
	r.sort()
	return r
}

func (r *Report) sort() {
	slices.SortFunc(r.Nodes, func(a, b NodeReport) int {
		return cmp.Or(cmp.Compare(a.Verdict.rank(), b.Verdict.rank()), cmp.Compare(b.BehindSeconds, a.BehindSeconds), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(r.Services, func(a, b ServiceProblem) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Reason, b.Reason))
	})
	clear(r.Verdicts)
	for i := range r.Nodes {
		r.Verdicts[r.Nodes[i].Verdict]++
	}
}

func answered(answers []Answer[api.Status], node string) bool {
	return slices.ContainsFunc(answers, func(a Answer[api.Status]) bool { return a.Agent.Node == node && a.Err == nil })
}

// judge judges one answer. Its times are by the clock of the node, and so is the difference of
// two of them.
func judge(a *Answer[api.Status], known bool) NodeReport {
	n := NodeReport{Name: a.Agent.Node, Verdict: Good, Pod: a.Agent.Namespace + "/" + a.Agent.Pod}
	if a.Err != nil {
		n.Verdict, n.Reason = NoAnswer, a.Err.Error()
		if a.Agent.State != "" {
			n.Reason = a.Agent.State
		} else if errors.Is(a.Err, ErrSilent) {
			n.Reason += ": is the process stopped?"
		}
		return n
	}
	s := a.Document
	n.Version, n.Source, n.LastSuccess = s.Version, s.Source, s.LastSuccess
	for _, p := range s.Problems {
		if !ofService(&p) {
			n.Problems = append(n.Problems, p)
		}
	}
	waits := pendingFor(a)
	switch {
	case !s.Healthy:
		n.Verdict, n.Reason = Unhealthy, unhealthy(s)
	case waits > maxPending:
		n.Verdict, n.BehindSeconds = Behind, waits.Seconds()
		n.Reason = fmt.Sprintf("changes wait for %s", waits.Round(time.Second))
	case !known:
		n.Verdict, n.Reason = NoNode, "there is no Node object"
	case len(n.Problems) > 0:
		n.Verdict, n.Reason = Problems, string(n.Problems[0].Reason)+": "+n.Problems[0].Message
	}
	return n
}

// lag makes a node that has not seen the newest object one that is behind.
func (n *NodeReport) lag(now time.Time, s *api.Status, newest map[string]Newest) {
	n.Seen = s.Seen
	kind := Lags(s, newest)
	if kind == "" || n.Verdict.rank() <= Behind.rank() {
		return
	}
	n.Verdict = Behind
	of := newest[kind]
	n.Reason = fmt.Sprintf("it has seen %s up to resourceVersion %s, and %s has %s", kind, s.Seen[kind], of.Object, of.ResourceVersion)
	if !of.Changed.IsZero() {
		n.BehindSeconds = max(0, now.Sub(of.Changed).Seconds())
	}
}

// pendingFor returns how long changes wait for a sync, by the clock of the node if its version
// says the time.
func pendingFor(a *Answer[api.Status]) time.Duration {
	if a.Document.PendingSince.IsZero() {
		return 0
	}
	return max(0, cmp.Or(a.Document.Time, a.Asked).Sub(a.Document.PendingSince))
}

func unhealthy(s *api.Status) string {
	switch {
	case s.SourceError != nil:
		return s.SourceError.Message
	case s.LastSync != nil && s.LastSync.Error != "":
		return s.LastSync.Error
	}
	return "no rules were applied yet"
}

// ofService reports whether a problem is of an object, which all nodes see.
func ofService(p *api.Problem) bool {
	return p.Object.Kind == model.ServiceName{}.Object().Kind
}

func collect(all map[[2]string]*ServiceProblem, node string, s *api.Status) {
	for _, p := range s.Problems {
		if !ofService(&p) {
			continue
		}
		key := [2]string{p.Object.String(), string(p.Reason)}
		if all[key] == nil {
			all[key] = &ServiceProblem{Problem: p, Node: node}
		}
		all[key].Nodes++
	}
}
