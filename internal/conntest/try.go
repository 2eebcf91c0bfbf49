package conntest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/explain"
)

// failures is after how many connections that are not as predicted a case ends.
const failures = 3

// parallel is how many cases of a prober are tried at the same time: most of the time they wait.
const parallel = 8

// Run tries cases, and returns their results in the order of the cases. count is the number of
// connections in each; zero: as many as it takes to meet all endpoints.
func Run(ctx context.Context, cases []*Case, proberOf func(*Case) *Prober, count int, done func(int)) ([]*Result, error) {
	results, errs := make([]*Result, len(cases)), make([]error, len(cases))
	var wait sync.WaitGroup
	var mu sync.Mutex
	slots, finished := make(chan struct{}, parallel), 0
	for i, c := range cases {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			results[i], errs[i] = c.Try(ctx, proberOf(c), count)
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

// Try opens the connections of a case and judges them.
func (c *Case) Try(ctx context.Context, p *Prober, count int) (*Result, error) {
	if c.Skip != "" {
		return c.Judge(nil, false), nil
	}
	start := time.Now()
	most, complete := c.Expected.connections()
	if count > 0 {
		most, complete = count, false
	}
	attempts, err := c.attempts(ctx, p, most, count > 0)
	if err != nil {
		return nil, err
	}
	r := c.Judge(attempts, complete && len(attempts) == most)
	switch {
	case c.Expected.relayed():
		r.fail(c.refusals(ctx, p.Patience))
	case r.State == NotPassed && c.protocol.String() == "tcp":
		r.Reasons = append(r.Reasons, c.diagnose(ctx, p, attempts)...)
	}
	r.Seconds = time.Since(start).Seconds()
	return r, ctx.Err()
}

// attempts opens connections until all endpoints are met, or too many have failed.
func (c *Case) attempts(ctx context.Context, p *Prober, most int, exactly bool) (out []Attempt, err error) {
	wrong := 0
	for len(out) < most {
		a, err := p.Open(ctx, c)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
		if a.Outcome == Unsupported {
			break
		}
		if c.mismatch(&a) != "" {
			wrong++
		}
		if !exactly && (wrong == failures || len(out) >= leastConnections && c.metAll(out)) {
			break
		}
	}
	return out, nil
}

// metAll reports whether connections have met all endpoints.
func (c *Case) metAll(attempts []Attempt) bool {
	for _, e := range c.Expected.Outcomes {
		if e.Verdict == explain.Forward && e.Share > 0 && !slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Endpoint == e.Endpoint }) {
			return false
		}
	}
	return true
}

// diagnose names the endpoints that take no connections of the machine itself: connection
// tracking forgets a connection of TCP that an endpoint has refused.
func (c *Case) diagnose(ctx context.Context, p *Prober, attempts []Attempt) (out []string) {
	if !slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Outcome == Refused || a.Outcome == Silent }) {
		return nil
	}
	return c.refusals(ctx, min(p.Patience, shortPatience))
}

// refusals names the endpoints that take no connections of the machine itself. Only these say whether
// an endpoint of a relay does: the relay accepts a client before it has an endpoint, and tries others.
// The kernel repeats a lost SYN after a second: where an answer decides, wait longer.
func (c *Case) refusals(ctx context.Context, patience time.Duration) (out []string) {
	here := &Prober{Do: Here, Patience: patience}
	for _, e := range c.Expected.forwards() {
		if !e.Endpoint.IsValid() { // of a relay whose objects are not known
			continue
		}
		if why := here.Refuses(ctx, c.Words, e.Endpoint); why != "" && len(out) < mostReason {
			out = append(out, why)
		}
	}
	return out
}
