package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Traffic is the part of [traffic.Collector] that the documents need.
type Traffic interface {
	Await(context.Context, traffic.Query, func(*traffic.Event) bool) traffic.Selection
	Sums(time.Time, int, func(*traffic.Refused) bool) ([]traffic.Sum, map[string]uint64)
	State() traffic.State
}

// observed has what the rules log.
type observed struct {
	Traffic // nil: they log nothing
	level   model.ObserveLevel
	words   report.Words
}

// Observed implements [report.Facts].
func (o *observed) Observed(ctx context.Context, q *api.ObserveQuery) *api.Observed {
	out := &api.Observed{Time: time.Now(), Level: o.level.String(), Events: []api.Observation{}, Minutes: traffic.Window.Minutes()}
	if o.Traffic == nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	found := o.Await(ctx, traffic.Query{After: q.After, Limit: q.Limit}, matcher(q, time.Now()))
	now := time.Now()
	out.Time, out.Next, out.Missed = now, found.Next, found.Missed
	state := o.observing(now)
	out.Error, out.Since, out.Total, out.Lost, out.Skipped = state.Error, state.Since, state.Events, state.Lost, state.Skipped
	out.Sampled, out.SampledFailed = state.Sampled, state.SampledFailed
	for i := range found.Events {
		e := observation(&found.Events[i], now)
		of := found.Events[i].Service.Service
		e.Balance = of != (model.ServiceName{}) && o.words.IsBalance(of) || of == (model.ServiceName{}) && o.words.Words() == words.Balance
		out.Events = append(out.Events, e)
	}
	if q.Top > 0 {
		o.addSums(out, q, now)
	}
	out.AddMeanings()
	return out
}

// observing returns the state of reading events, or nil.
func (o *observed) observing(now time.Time) *api.Observing {
	if o.Traffic == nil {
		return nil
	}
	state := o.State()
	out := &api.Observing{Level: o.level.String(), Lost: state.Lost, Skipped: state.Skipped, Events: state.Total()}
	out.Refused, out.Failed, out.Served = state.Outcomes()
	out.Sampled, out.SampledFailed = state.Sampled, state.SampledFailed
	if state.Err != nil {
		out.Error, out.Since = state.Err.Error(), report.OnClock(now, state.Since)
	}
	return out
}

// matcher returns what a query selects.
func matcher(q *api.ObserveQuery, now time.Time) func(*traffic.Event) bool {
	return func(e *traffic.Event) bool {
		return (q.Within == 0 || now.Sub(e.Time) <= q.Within) && q.MatchesReason(e.Reason) && q.MatchesOutcome(e.Outcome) && q.MatchesClient(e.Client.Addr()) &&
			q.MatchesService(e.Service.Service)
	}
}

func observation(e *traffic.Event, now time.Time) api.Observation {
	o := api.Observation{
		Number: e.Number, Time: report.OnClock(now, e.Time), Outcome: e.Outcome.String(), Reason: e.Reason,
		Protocol: e.Protocol.String(), Client: model.EndpointText(e.Client), Frontend: model.EndpointText(e.Dialled),
		Namespace: e.Service.Service.Namespace, Service: e.Service.Service.Name, Port: e.Service.Port,
	}
	if r := model.RefusalOf(e.Reason); r != nil {
		o.Ends = r.Ends()
	}
	if e.Endpoint.IsValid() {
		o.Endpoint = model.EndpointText(e.Endpoint)
	}
	if e.Outcome != model.RefusedByRules {
		o.Seconds = e.Duration.Round(time.Millisecond).Seconds()
	}
	if e.Counted {
		o.Sent, o.Received = &e.Sent, &e.Received
	}
	return o
}

// addSums adds who was refused by what in the last minutes.
func (o *observed) addSums(out *api.Observed, q *api.ObserveQuery, now time.Time) {
	var match func(*traffic.Refused) bool // nil: the numbers by reason are complete
	if q.SelectsSums() {
		match = func(r *traffic.Refused) bool {
			return q.MatchesReason(r.Reason) && q.MatchesOutcome(model.OutcomeOf(r.Reason)) && q.MatchesClient(r.Client) && q.MatchesService(r.Service.Service)
		}
	}
	sums, reasons := o.Sums(now, q.Top, match)
	out.Reasons = reasons
	for i := range sums {
		r := &sums[i]
		c := api.RefusedClient{
			Client: r.Client.String(), Reason: r.Reason, Protocol: r.Protocol.String(),
			Namespace: r.Service.Service.Namespace, Service: r.Service.Service.Name, Port: r.Service.Port,
			Events: r.Events, Last: report.OnClock(now, r.Last),
		}
		if r.Dialled != (netip.AddrPort{}) {
			c.Frontend = model.EndpointText(r.Dialled)
		}
		out.Refused = append(out.Refused, c)
	}
}

// addSamples adds the outcomes of sampled connections to each endpoint, and how many were lost on this machine.
func addSamples(d *api.Description, name model.ServiceName, of func(model.PortName, netip.AddrPort) [conntrack.Outcomes]int, droppedOf func(model.PortName) (dropped, all int)) {
	for i := range d.Ports {
		p := &d.Ports[i]
		if p.Protocol != model.TCP.String() {
			continue // has no samples
		}
		port := model.PortName{Service: name, Port: p.Name, Protocol: model.TCP}
		for j := range p.Endpoints {
			at, err := netip.ParseAddrPort(p.Endpoints[j].Address)
			if err != nil {
				continue // it has no port
			}
			if n := of(port, at); n != [conntrack.Outcomes]int{} {
				p.Endpoints[j].Sampled = &api.Sampled{Answered: n[conntrack.Answered], Refused: n[conntrack.Refused], Unanswered: n[conntrack.Unanswered]}
			}
		}
		if dropped, all := droppedOf(port); dropped > 0 {
			d.Notices = append(d.Notices, fmt.Sprintf("%d of %d sampled connections in the last minute were lost on this machine%s: nftproxy trace %s", dropped, all, port.Suffix(), name))
		}
	}
}
