package report

import (
	"context"
	"net/netip"
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Traffic is the part of [traffic.Collector] that a server needs.
type Traffic interface {
	Await(context.Context, traffic.Query) traffic.Selection
	Sums(time.Time, int, func(*traffic.Refused) bool) ([]traffic.Sum, map[string]uint64)
	State() traffic.State
}

// followTimeout limits a request that waits for events.
const followTimeout = api.MaxWait + writeTimeout

// answerObserved answers with an [api.Observed].
func (s *Server) answerObserved(ctx context.Context, values url.Values) (any, error) {
	q, err := api.ParseObserveQuery(values)
	if err != nil {
		return nil, queryError{err}
	}
	return s.observations(ctx, &q), nil
}

func (s *Server) observations(ctx context.Context, q *api.ObserveQuery) *api.Observed {
	out := &api.Observed{Time: time.Now(), Instance: s.live.instance, Node: s.config.Node, Level: s.config.Observe.String(), Events: []api.Observation{}, Minutes: traffic.Window.Minutes(), Words: s.words()}
	if s.config.Traffic == nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	found := s.config.Traffic.Await(ctx, traffic.Query{After: q.After, Limit: q.Limit, Match: matcher(q, time.Now())})
	now := time.Now()
	out.Time, out.Next, out.Missed = now, found.Next, found.Missed
	state := s.observing(now)
	out.Error, out.Since, out.Total, out.Lost, out.Skipped = state.Error, state.Since, state.Events, state.Lost, state.Skipped
	out.Sampled, out.SampledFailed = state.Sampled, state.SampledFailed
	for i := range found.Events {
		o := observation(&found.Events[i], now)
		o.Balance = s.wordsFor(found.Events[i].Service.Service) == words.Balance
		out.Events = append(out.Events, o)
	}
	if q.Top > 0 {
		s.addSums(out, q, now)
	}
	out.AddMeanings()
	return out
}

// observing returns the state of reading events, or nil.
func (s *Server) observing(now time.Time) *api.Observing {
	if s.config.Traffic == nil {
		return nil
	}
	state := s.config.Traffic.State()
	o := &api.Observing{Level: s.config.Observe.String(), Lost: state.Lost, Skipped: state.Skipped, Events: state.Total()}
	o.Refused, o.Failed, o.Served = state.Outcomes()
	o.Sampled, o.SampledFailed = state.Sampled, state.SampledFailed
	if state.Err != nil {
		o.Error, o.Since = state.Err.Error(), onClock(now, state.Since)
	}
	return o
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
		Number: e.Number, Time: onClock(now, e.Time), Outcome: e.Outcome.String(), Reason: e.Reason,
		Protocol: e.Protocol.String(), Client: traffic.EndText(e.Client), Frontend: traffic.EndText(e.Dialled),
		Namespace: e.Service.Service.Namespace, Service: e.Service.Service.Name, Port: e.Service.Port,
	}
	if r := model.RefusalOf(e.Reason); r != nil {
		o.Ends = r.Ends()
	}
	if e.Endpoint.IsValid() {
		o.Endpoint = traffic.EndText(e.Endpoint)
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
func (s *Server) addSums(out *api.Observed, q *api.ObserveQuery, now time.Time) {
	var match func(*traffic.Refused) bool // nil: the numbers by reason are complete
	if q.SelectsSums() {
		match = func(r *traffic.Refused) bool {
			return q.MatchesReason(r.Reason) && q.MatchesOutcome(model.OutcomeOf(r.Reason)) && q.MatchesClient(r.Client) && q.MatchesService(r.Service.Service)
		}
	}
	sums, reasons := s.config.Traffic.Sums(now, q.Top, match)
	out.Reasons = reasons
	for i := range sums {
		r := &sums[i]
		c := api.RefusedClient{
			Client: r.Client.String(), Reason: r.Reason, Protocol: r.Protocol.String(),
			Namespace: r.Service.Service.Namespace, Service: r.Service.Service.Name, Port: r.Service.Port,
			Events: r.Events, Last: onClock(now, r.Last),
		}
		if r.Dialled != (netip.AddrPort{}) {
			c.Frontend = traffic.EndText(r.Dialled)
		}
		out.Refused = append(out.Refused, c)
	}
}
