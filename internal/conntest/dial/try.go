package dial

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Run tries cases, and returns their results in the order of the cases. count is the number of
// connections in each; zero: as many as it takes to meet all endpoints.
func Run(ctx context.Context, cases []*conntest.Case, probers map[conntest.Origin]*Prober, count int, done func(int)) ([]*conntest.Result, error) {
	results, finished := make([]*conntest.Result, len(cases)), 0
	var failure error
	parallel.Each(len(cases), conntest.Parallel, func(i int) (err error) {
		results[i], err = probers[cases[i].From].try(ctx, cases[i], count)
		return err
	}, func(_ int, err error) {
		if failure == nil {
			failure = err
		}
		finished++
		done(finished)
	})
	return results, failure
}

func (p *Prober) try(ctx context.Context, c *conntest.Case, count int) (*conntest.Result, error) {
	if c.Skip != "" {
		return c.Judge(nil, false), nil
	}
	d := c.Dial(conntest.Tracked, p.Patience, count)
	isWrong := func(a *conntest.Attempt) bool { return count == 0 && c.Mismatch(a) != "" }
	got := d.Run(ctx, isWrong, func(ctx context.Context) (conntest.Attempt, error) {
		return d.Repeat(func() (conntest.Attempt, error) { return p.open(ctx, &d) })
	})
	if got.Error != "" {
		return nil, errors.New(got.Error)
	}
	r := c.JudgeDialled(&d, &got)
	switch {
	case c.Expected.Relayed():
		r.Fail(refusals(ctx, c, p.Patience))
	case r.State == conntest.NotPassed && c.Protocol == model.TCP.String() && slices.ContainsFunc(got.Attempts, func(a conntest.Attempt) bool {
		return a.Outcome == conntest.Refused || a.Outcome == conntest.Silent
	}):
		// Connection tracking forgets a connection of TCP that an endpoint has refused.
		r.Fail(refusals(ctx, c, min(p.Patience, conntest.ShortPatience)))
	}
	return r, ctx.Err()
}

// refusals names the endpoints that take no connections of the machine itself. Only these say whether
// an endpoint of a relay does: the relay accepts a client before it has an endpoint, and tries others.
// The kernel repeats a lost SYN after a second: where an answer decides, wait longer.
func refusals(ctx context.Context, c *conntest.Case, patience time.Duration) (out []string) {
	here := &Prober{Patience: patience}
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
