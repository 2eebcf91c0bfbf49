package report

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/served"
)

// Staying are Services that stay as the kernel serves them: because the routing may not know them, or if
// the value is true, because the kernel refuses the rules that it has for them.
type Staying map[model.ServiceName]bool

// KernelPlanner compares the rules for a routing with the kernel, through a connection of its own: the one of the agent
// is in use. The Services that its notices name as kept or quarantined stay.
type KernelPlanner struct{ Log *slog.Logger }

// Compare implements [Planner].
func (k KernelPlanner) Compare(r *model.Routing) (*plan.Plan, error) {
	conn, err := kernel.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing was written
	stays := make(Staying)
	for _, n := range r.Notices {
		switch name := (model.ServiceName{Namespace: n.Object.Namespace, Name: n.Object.Name}); n.Reason {
		case model.Kept, model.NotKept:
			stays[name] = false
		case model.Quarantined:
			stays[name] = true
		}
	}
	a := apply.New(conn, k.Log)
	rules, err := Rules(a, r, stays)
	if err != nil {
		return nil, err
	}
	p, _, err := a.Plan(rules)
	return p, err
}

// Rules returns the rules for a routing beside Services that stay as the kernel serves them.
func Rules(a *apply.Applier, r *model.Routing, stays Staying) (*nft.Ruleset, error) {
	if len(stays) == 0 {
		return render.Render(r), nil
	}
	held, err := a.Held()
	if err != nil {
		return nil, err
	}
	refused, unknown := make(map[model.ServiceName]bool), make(map[model.ServiceName]bool)
	for name, isRefused := range stays {
		if isRefused {
			refused[name] = true
		} else {
			unknown[name] = true
		}
	}
	others := *r
	isRefused := func(r model.Route) bool { return refused[r.Service.Name] }
	others.Routes, others.Echoes = slices.DeleteFunc(slices.Clone(r.Routes), isRefused), slices.DeleteFunc(slices.Clone(r.Echoes), func(r *model.Route) bool { return isRefused(*r) })
	for i := range others.Routes {
		delete(unknown, others.Routes[i].Service.Name)
	}
	namesRefused := func(comment string) bool { return plan.NamesOneOf(refused, comment) }
	found := served.Keep(held, func(comment string) bool {
		port, _ := nft.ParseComment(comment)
		return namesRefused(comment) || unknown[port.Service]
	})
	_, delta := render.StartKeeping(&others, found.Without(&others, namesRefused))
	return delta.After, nil
}

// Compare returns what would make the kernel hold the rules for a routing beside Services that stay, and what
// of that clients of each Service notice. The objects behind the rules may be nil.
func Compare(conn *kernel.Conn, log *slog.Logger, r *model.Routing, stays Staying, objects *model.Snapshot) (*plan.Plan, []changes.Service, error) {
	a := apply.New(conn, log)
	rules, err := Rules(a, r, stays)
	if err != nil {
		return nil, nil, err
	}
	var seen apply.Comparison
	a.Observer = &seen
	p, _, err := a.Plan(rules)
	if err != nil {
		return nil, nil, err
	}
	return p, changes.Count(changes.Rules(seen.Current, seen.Wanted, p, objects), p), nil
}

const (
	// maxDifferences is how many are named.
	maxDifferences = 50
	// settleAttempts is how often a comparison begins again because the rules change.
	settleAttempts = 5
	settlePause    = 200 * time.Millisecond
)

// comparer compares the kernel with what the agent wants, for requests. It is safe for
// concurrent use.
type comparer struct {
	config *Config
	every  time.Duration

	mu   sync.Mutex // held during a comparison
	last *api.Comparison
}

// answer answers with an [api.Comparison].
func (c *comparer) answer(ctx context.Context, query url.Values) (any, error) {
	service := query.Get("service")
	if namespace, name, ok := strings.Cut(service, "/"); service != "" && (!ok || namespace == "" || name == "") {
		return nil, malformed(fmt.Errorf("service: %q is not namespace/name", service))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.last
	if out == nil || time.Since(out.Compared) >= c.every || out.Unsettled != "" {
		var err error
		if out, err = c.compare(ctx); err != nil {
			return nil, err
		}
		c.last = out
	}
	answer := *out
	if service == "" {
		return &answer, nil
	}
	answer.Digests, answer.Elements = nil, changes.ElementsOf(rulesFor(c.config.Agent.Routing(), service), service)
	return &answer, nil
}

// rulesFor returns the rules of one Service: those of all would cost each request much.
func rulesFor(routing *model.Routing, service string) *nft.Ruleset {
	own := *routing
	own.Routes = slices.DeleteFunc(slices.Clone(routing.Routes), func(r model.Route) bool { return r.Service.Name.String() != service })
	return render.Render(&own)
}

// compare compares the kernel with the rules that the agent has applied. It begins again while
// these change.
func (c *comparer) compare(ctx context.Context) (*api.Comparison, error) {
	for attempt := 0; ; attempt++ {
		before := c.config.Agent.State()
		if before.Pending.IsZero() {
			routing := c.config.Agent.Routing()
			p, err := c.config.Planner.Compare(routing)
			if err != nil {
				return nil, err
			}
			now := c.config.Agent.State()
			if now.Pending.IsZero() && now.LastSync.Equal(before.LastSync) { // the rules have not changed
				return &api.Comparison{
					Version: c.config.Version, Compared: time.Now(), Count: len(p.Changes), Differences: differences(p, maxDifferences),
					Digests: changes.Digests(render.Render(routing)),
				}, nil
			}
		}
		if attempt == settleAttempts {
			why := "changes are being applied"
			if before.LastSync.IsZero() {
				why = "not synced yet"
			}
			return &api.Comparison{Version: c.config.Version, Unsettled: why, Differences: []api.Difference{}}, nil
		}
		if !parallel.Wait(ctx, settlePause) {
			return nil, ctx.Err()
		}
	}
}

func differences(p *plan.Plan, most int) []api.Difference {
	out := make([]api.Difference, min(len(p.Changes), most))
	for i := range out {
		out[i].Change = p.Changes[i].Text()
		if comment := p.ServicePort(&p.Changes[i]); comment != "" {
			port, _ := nft.ParseComment(comment)
			out[i].Service, out[i].Port = port.Service.String(), port.Port
		}
	}
	return out
}
