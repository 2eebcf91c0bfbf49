package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// ConvergeOptions say how to measure.
type ConvergeOptions struct {
	Rounds int
	Wait   time.Duration // for a node, in a round
	// ProxyName is the value of the label service.kubernetes.io/service-proxy-name of the
	// Service; empty: it has none.
	ProxyName string
}

// MaxRounds is how many rounds have an address of their own.
const MaxRounds = 250

// limit is the longest time that a run can take, without the removal of its objects.
func (o *ConvergeOptions) limit(timeout time.Duration) time.Duration {
	return time.Duration(o.Rounds+1)*(o.Wait+timeout) + time.Minute
}

// Converge measures, for each of the nodes, the time from the API server's answer to a change of
// an EndpointSlice until the kernel has it. After an error, or when ctx ends, the report has the
// rounds that were completed; the objects are removed in any case. progress is called with the round,
// from 1 to Rounds, and the number of nodes that have its change; round 0 is not measured.
func (f *Fleet) Converge(ctx context.Context, nodes []Node, agents []Agent, o ConvergeOptions, progress func(round, have int)) (r *Convergence, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit(f.Timeout), errors.New("the nodes took too long"))
	defer cancel()
	scratch := kubectl.NewScratch(f.API, kubectl.Purpose{Label: LabelConverge, Prefix: "nftproxy-converge-"}, o.limit(f.Timeout))
	c := &converging{Fleet: f, ConvergeOptions: o, agents: agents, probe: &probe{Scratch: scratch, api: f.API, proxyName: o.ProxyName}}
	c.report.Changes, c.report.Namespace, c.report.Wait = []Written{}, c.probe.Name, o.Wait.Seconds()
	c.report.addNodes(nodes, agents)
	defer func() { c.report.finish() }()
	if err := kubectl.Permitted(ctx, f.API, rights, "converge"); err != nil {
		return &c.report, err
	}
	begin := time.Now()
	c.report.Started = begin
	defer func() {
		c.report.Seconds = time.Since(begin).Seconds()
		err = errors.Join(err, c.probe.remove(ctx))
		c.report.Leftovers = c.probe.Leftovers
	}()
	if err := c.probe.create(ctx); err != nil {
		return &c.report, err
	}
	for n := 0; n <= o.Rounds && len(c.agents) > 0; n++ { // the Service is new in round 0, which is not measured
		if err := c.round(ctx, n, progress); err != nil {
			return &c.report, err
		}
	}
	return &c.report, nil
}

type converging struct {
	*Fleet
	ConvergeOptions
	probe  *probe
	agents []Agent // that are asked
	report Convergence
}

// round changes the endpoint and measures the nodes. A node that does not have the change in
// time is not asked in later rounds.
func (c *converging) round(ctx context.Context, n int, progress func(round, have int)) error {
	if n > 0 {
		if err := c.probe.change(ctx, n); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	missing := make(map[string]string)
	for _, a := range c.agents {
		missing[a.Node] = ""
	}
	all := len(missing)
	progress(n, 0)
	for pause := firstPause; len(missing) > 0 && parallel.Wait(limited, pause); pause = min(2*pause, lastPause) {
		answers := Ask(limited, c.Fleet, c.agentsOn(missing), func(int) {}, c.ask)
		if ctx.Err() != nil {
			break
		}
		for i := range answers {
			c.judge(n, &answers[i], missing)
		}
		progress(n, all-len(missing))
	}
	if err := kubectl.Ended(ctx); err != nil {
		return err
	}
	c.dropMissing(ctx, n, missing)
	if n > 0 {
		c.report.Rounds++
		c.report.Changes = append(c.report.Changes, Written{c.probe.endpoint.String(), c.probe.Answered})
	}
	return nil
}

// agentsOn returns the agents on some nodes.
func (c *converging) agentsOn(nodes map[string]string) []Agent {
	return slices.DeleteFunc(slices.Clone(c.agents), func(a Agent) bool { _, is := nodes[a.Node]; return !is })
}

// Pauses between two questions to the nodes that do not have a change. Their length is not in the
// results: nodes say for how long they have it.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

type said struct {
	changed  *api.LastChange
	endpoint bool // the description has the endpoint of the round
	exchange
}

func (c *converging) ask(ctx context.Context, client *api.Client) (*said, error) {
	s := new(said)
	d, err := client.DescribeRules(s.trace(ctx), c.probe.service())
	if err != nil {
		return nil, err
	}
	if d.Unsynced != "" {
		return nil, errors.New(d.Unsynced)
	}
	s.changed = d.Changed
	for i := range d.Ports {
		for j := range d.Ports[i].Endpoints {
			s.endpoint = s.endpoint || d.Ports[i].Endpoints[j].Address == c.probe.endpoint.String()
		}
	}
	return s, nil
}

// judge records the time of a node that has the change, and removes it from the missing ones. Of
// another one it notes there why it does not have it.
func (c *converging) judge(n int, a *Answer[said], missing map[string]string) {
	node, s := a.Agent.Node, a.Document
	before, isMissing := missing[node]
	late := errors.Is(a.Err, context.DeadlineExceeded) // the end of the round has cut the question off
	switch {
	case !isMissing: // another pod on the node has answered
	case late && before != "":
	case a.Err != nil && a.Agent.State != "":
		missing[node] = a.Agent.State
	case late, errors.Is(a.Err, ErrSilent):
		missing[node] = fmt.Sprintf("no answer within %s: is the process stopped?", c.Wait)
	case a.Err != nil:
		missing[node] = a.Err.Error()
	case s.changed == nil:
		missing[node] = "it has not synced yet"
	case s.changed.AgeSeconds > 0 && s.changed.OnlyEndpoint == c.probe.endpoint.String():
		delete(missing, node)
		if n > 0 {
			took, excess := s.after(c.probe.Answered, s.changed.AgeSeconds)
			c.report.add(node, took, excess)
		}
	case s.endpoint && !s.changed.Time.IsZero() && s.changed.AgeSeconds == 0:
		delete(missing, node)
		c.drop(n, node, "its nftproxy is older than this command, and does not say when the kernel had a change")
	case s.endpoint && s.changed.Time.IsZero():
		delete(missing, node)
		c.skip(n, node, "it has the change, but does not know since when: nftproxy has started again, or too much has changed")
	default:
		missing[node] = fmt.Sprintf("it has not applied the change within %s", c.Wait)
	}
}

// skip notes why a node has no time in a round.
func (c *converging) skip(n int, node, why string) {
	if n > 0 {
		why = fmt.Sprintf("round %d: %s", n, why)
	}
	c.report.node(node).Reason = why
}

// drop is skip for a node that is not asked in later rounds.
func (c *converging) drop(n int, node, why string) {
	c.agents = slices.DeleteFunc(slices.Clone(c.agents), func(a Agent) bool { return a.Node == node })
	c.skip(n, node, why)
}

// dropMissing gives up all nodes that do not have the change of a round. Where they answer, how they are
// configured or what their status says is the reason.
func (c *converging) dropMissing(ctx context.Context, n int, missing map[string]string) {
	type state struct {
		basis  *api.Basis
		status *api.Status
	}
	answers := Ask(ctx, c.Fleet, c.agentsOn(missing), func(int) {}, func(ctx context.Context, client *api.Client) (*state, error) {
		var s state
		var err error
		if s.basis, err = client.Basis(ctx); err == nil {
			s.status, err = client.Status(ctx, &api.Filter{Rows: 1})
		}
		return &s, err
	})
	for i := range answers {
		a := &answers[i]
		if a.Err != nil {
			continue
		}
		verdict := judge(&Answer[api.Status]{Agent: a.Agent, Document: a.Document.status, Asked: a.Asked}, true)
		switch name := a.Document.basis.Settings["service-proxy-name"]; {
		case !a.Document.basis.Cluster:
			missing[a.Agent.Node] = "it reads files, and not the API server"
		case name != c.ProxyName && name == "":
			missing[a.Agent.Node] = "it does not serve Services with the label service.kubernetes.io/service-proxy-name"
		case name != c.ProxyName:
			missing[a.Agent.Node] = fmt.Sprintf("it serves only Services with the label service.kubernetes.io/service-proxy-name: --service-proxy-name=%s", name)
		case verdict.Verdict.IsWrong():
			missing[a.Agent.Node] = fmt.Sprintf("%s: %s", verdict.Verdict, verdict.Reason)
		}
	}
	for node, why := range missing {
		c.drop(n, node, why)
	}
}

// exchange is a question and its answer, on the clock of this machine. It is safe for concurrent
// use: a connection may end late.
type exchange struct {
	mu             sync.Mutex
	asked, arrived time.Time
}

// trace returns a context with which a request notes its times. The time to connect is not among
// them.
func (e *exchange) trace(ctx context.Context) context.Context {
	note := func(at *time.Time) {
		e.mu.Lock()
		defer e.mu.Unlock()
		*at = time.Now()
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { note(&e.asked) },
		GotFirstResponseByte: func() { note(&e.arrived) },
	})
}

// after returns how long after a time something happened that is as old as the answer says, and
// by how much that is too long at most. What happened before counts as at that time.
func (e *exchange) after(t time.Time, age float64) (took, excess time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.arrived.Add(-time.Duration(age * float64(time.Second)))
	return max(0, at.Sub(t)), e.arrived.Sub(e.asked)
}
