package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Answer is what an agent answers.
type Answer[D any] struct {
	Agent Agent
	// Document is nil after an error.
	Document *D
	Err      error
	Asked    time.Time
}

// ErrSilent means that an agent accepts connections, or its kubelet, and does not answer in
// time, for example because the process is stopped.
var ErrSilent = errors.New("no answer")

// Ask asks all of the agents for a document, at most Parallel at the same time. It calls done
// with the number of answers so far after each one. Answers are in the order of the agents; an
// agent that does not answer in time has [ErrSilent].
func Ask[D any](ctx context.Context, f *Fleet, agents []Agent, done func(int), ask func(context.Context, *api.Client) (*D, error)) []Answer[D] {
	return AskEach(ctx, f, agents, done, func(ctx context.Context, _ *Agent, client *api.Client) (*D, error) { return ask(ctx, client) })
}

// AskEach is [Ask] with questions that depend on the agent.
func AskEach[D any](ctx context.Context, f *Fleet, agents []Agent, done func(int), ask func(context.Context, *Agent, *api.Client) (*D, error)) []Answer[D] {
	answers, count := make([]Answer[D], len(agents)), 0
	parallel.Each(len(agents), max(f.Parallel, 1), func(i int) Answer[D] {
		return AskOne(ctx, f, agents[i], func(ctx context.Context, client *api.Client) (*D, error) { return ask(ctx, &agents[i], client) })
	}, func(i int, a Answer[D]) {
		answers[i] = a
		count++
		done(count)
	})
	return answers
}

// AskOne asks one agent for a document.
func AskOne[D any](ctx context.Context, f *Fleet, a Agent, ask func(context.Context, *api.Client) (*D, error)) Answer[D] {
	out := Answer[D]{Agent: a, Asked: time.Now()}
	limited, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	transport, err := f.Transport.To(&a)
	if err == nil {
		client := api.NewClientThrough(transport, f.Port, a.String())
		client.Decoder = decoder{}
		out.Document, err = ask(limited, client)
		client.Close()
	}
	if err != nil {
		out.Document = nil
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w within %s", ErrSilent, f.Timeout)
		}
	}
	out.Err = err
	return out
}
