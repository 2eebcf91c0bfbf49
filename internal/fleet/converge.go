package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/source"
)

// ConvergeOptions say how to measure.
type ConvergeOptions struct {
	Rounds int
	Wait   time.Duration // for a node, in a round
	// ProxyName is the value of the label service.kubernetes.io/service-proxy-name of the
	// Service; empty: it has none.
	ProxyName string
	// Progress is called with the round, from 1 to Rounds, and the number of nodes that have its
	// change; round 0 is not measured.
	Progress func(round, have int)
}

// MaxRounds is how many rounds have an address of their own.
const MaxRounds = 250

// limit is the longest time that a run can take, without the removal of its objects.
func (o *ConvergeOptions) limit(timeout time.Duration) time.Duration {
	return time.Duration(o.Rounds+1)*(o.Wait+timeout) + time.Minute
}

// Converge measures, for each of the nodes, the time from the API server's answer to a change of
// an EndpointSlice until the kernel has it. After an error, or when ctx ends, the report has the
// rounds that were completed; the objects are removed in any case.
func (f *Fleet) Converge(ctx context.Context, nodes []Node, agents []Agent, o ConvergeOptions) (r *Convergence, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit(f.Timeout), errors.New("the nodes took too long"))
	defer cancel()
	c := &converging{Fleet: f, ConvergeOptions: o, agents: agents, probe: newProbe(f.API, &o, o.limit(f.Timeout))}
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
		if err := c.round(ctx, n); err != nil {
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
func (c *converging) round(ctx context.Context, n int) error {
	if n > 0 {
		if err := c.probe.change(ctx, n); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	missing := newMissing(c.agents)
	have := len(c.agents)
	c.Progress(n, 0)
	for pause := firstPause; len(missing) > 0; pause = min(2*pause, lastPause) {
		if !source.Wait(limited, pause) {
			break
		}
		answers := Ask(limited, c.Fleet, missing.agents(), func(int) {}, c.ask)
		if ctx.Err() != nil {
			break
		}
		for i := range answers {
			c.judge(n, &answers[i], missing)
		}
		c.Progress(n, have-len(missing))
	}
	if err := kubectl.Ended(ctx); err != nil {
		return err
	}
	c.drop(ctx, n, missing)
	if n > 0 {
		c.report.Rounds++
		c.report.Changes = append(c.report.Changes, Written{c.probe.endpoint.String(), c.probe.Answered})
	}
	return nil
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

// judge records the time of a node that has the change, and removes it from those that are missing.
func (c *converging) judge(n int, a *Answer[said], m missing) {
	node, s := a.Agent.Node, a.Document
	switch {
	case m[node] == nil: // another pod on the node has answered
	case a.Err != nil:
		m.failed(&a.Agent, a.Err, c.Wait)
	case s.changed == nil:
		m.because(node, "it has not synced yet")
	case s.changed.AgeSeconds > 0 && s.changed.OnlyEndpoint == c.probe.endpoint.String():
		delete(m, node)
		if n > 0 {
			took, excess := s.after(c.probe.Answered, s.changed.AgeSeconds)
			c.report.add(node, took, excess)
		}
	case s.endpoint && !s.changed.Time.IsZero() && s.changed.AgeSeconds == 0:
		delete(m, node)
		c.lose(n, node, "its nftproxy is older than this command, and does not say when the kernel had a change")
	case s.endpoint && s.changed.Time.IsZero():
		delete(m, node)
		c.skip(n, node, "it has the change, but does not know since when: nftproxy has started again, or too much has changed")
	default:
		m.because(node, fmt.Sprintf("it has not applied the change within %s", c.Wait))
	}
}

func (c *converging) lose(n int, node, why string) {
	c.agents = slices.DeleteFunc(slices.Clone(c.agents), func(a Agent) bool { return a.Node == node })
	c.skip(n, node, why)
}

func (c *converging) skip(n int, node, why string) {
	if n > 0 {
		why = fmt.Sprintf("round %d: %s", n, why)
	}
	c.report.lose(node, why)
}

// drop gives up all nodes that do not have the change of a round, with the reason.
func (c *converging) drop(ctx context.Context, n int, m missing) {
	if len(m) == 0 {
		return
	}
	reasons := c.reasons(ctx, m)
	for node, of := range m {
		why := reasons[node]
		if why == "" {
			why = of.why
		}
		c.lose(n, node, why)
	}
}

// reasons finds out why nodes do not have a change, where they answer: how they are configured, or
// what their status says.
func (c *converging) reasons(ctx context.Context, m missing) map[string]string {
	out := make(map[string]string)
	type state struct {
		basis  *api.Basis
		status *api.Status
	}
	answers := Ask(ctx, c.Fleet, m.answering(), func(int) {}, func(ctx context.Context, client *api.Client) (*state, error) {
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
			out[a.Agent.Node] = "it reads files, and not the API server"
		case name != c.ProxyName && name == "":
			out[a.Agent.Node] = "it does not serve Services with the label service.kubernetes.io/service-proxy-name"
		case name != c.ProxyName:
			out[a.Agent.Node] = fmt.Sprintf("it serves only Services with the label service.kubernetes.io/service-proxy-name: --service-proxy-name=%s", name)
		case verdict.Verdict.IsWrong():
			out[a.Agent.Node] = fmt.Sprintf("%s: %s", verdict.Verdict, verdict.Reason)
		}
	}
	return out
}
