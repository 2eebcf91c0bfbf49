package dial

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Run tries cases, and returns their results in the order of the cases. count is the number of
// connections in each; zero: as many as it takes to meet all endpoints.
func Run(ctx context.Context, cases []*conntest.Case, proberOf func(*conntest.Case) *Prober, count int, done func(int)) ([]*conntest.Result, error) {
	results, errs := make([]*conntest.Result, len(cases)), make([]error, len(cases))
	var wait sync.WaitGroup
	var mu sync.Mutex
	slots, finished := make(chan struct{}, conntest.Parallel), 0
	for i, c := range cases {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			results[i], errs[i] = proberOf(c).try(ctx, c, count)
			mu.Lock()
			defer mu.Unlock()
			finished++
			done(finished)
		})
	}
	wait.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	return results, nil
}

// try opens the connections of a case and judges them.
func (p *Prober) try(ctx context.Context, c *conntest.Case, count int) (*conntest.Result, error) {
	if c.Skip != "" {
		return c.Judge(nil, false), nil
	}
	start := time.Now()
	most, complete := c.Expected.Connections()
	if count > 0 {
		most, complete = count, false
	}
	attempts, err := p.attempts(ctx, c, most, count > 0)
	if err != nil {
		return nil, err
	}
	r := c.Judge(attempts, complete && len(attempts) == most)
	switch {
	case c.Expected.Relayed():
		r.Fail(refusals(ctx, c, p.Patience))
	case r.State == conntest.NotPassed && c.Protocol == model.TCP.String():
		r.Reasons = append(r.Reasons, p.diagnose(ctx, c, attempts)...)
	}
	r.Seconds = time.Since(start).Seconds()
	return r, ctx.Err()
}

// attempts opens connections until all endpoints are met, or too many have failed.
func (p *Prober) attempts(ctx context.Context, c *conntest.Case, most int, exactly bool) (out []conntest.Attempt, err error) {
	to, err := targetOf(c)
	if err != nil {
		return nil, err
	}
	wrong := 0
	for len(out) < most {
		a, err := p.open(ctx, to)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
		if a.Outcome == conntest.Unsupported {
			break
		}
		if c.Mismatch(&a) != "" {
			wrong++
		}
		if !exactly && (wrong == conntest.Failures || len(out) >= conntest.LeastConnections && metAll(c, out)) {
			break
		}
	}
	return out, nil
}

// metAll reports whether connections have met all endpoints.
func metAll(c *conntest.Case, attempts []conntest.Attempt) bool {
	for _, e := range c.Expected.Outcomes {
		if e.Verdict == explain.Forward && e.Share > 0 && !slices.ContainsFunc(attempts, func(a conntest.Attempt) bool { return a.Endpoint == e.Endpoint }) {
			return false
		}
	}
	return true
}

// diagnose names the endpoints that take no connections of the machine itself: connection
// tracking forgets a connection of TCP that an endpoint has refused.
func (p *Prober) diagnose(ctx context.Context, c *conntest.Case, attempts []conntest.Attempt) (out []string) {
	if !slices.ContainsFunc(attempts, func(a conntest.Attempt) bool { return a.Outcome == conntest.Refused || a.Outcome == conntest.Silent }) {
		return nil
	}
	return refusals(ctx, c, min(p.Patience, conntest.ShortPatience))
}

// refusals names the endpoints that take no connections of the machine itself. Only these say whether
// an endpoint of a relay does: the relay accepts a client before it has an endpoint, and tries others.
// The kernel repeats a lost SYN after a second: where an answer decides, wait longer.
func refusals(ctx context.Context, c *conntest.Case, patience time.Duration) (out []string) {
	here := &Prober{Do: Here, Patience: patience}
	for _, e := range c.Expected.Forwards() {
		if !e.Endpoint.IsValid() { // of a relay whose objects are not known
			continue
		}
		if why := here.Refuses(ctx, c.Words, e.Endpoint); why != "" && len(out) < conntest.MostReasons {
			out = append(out, why)
		}
	}
	return out
}
