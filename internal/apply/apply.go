package apply

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/render"
	"golang.org/x/sys/unix"
)

// Applier brings the kernel to a wanted ruleset.
type Applier struct {
	kernel Kernel
	log    *slog.Logger
}

// New returns an applier.
func New(k Kernel, log *slog.Logger) *Applier {
	return &Applier{kernel: k, log: log}
}

// Plan returns what Apply would do now, and the generation for which that
// holds.
func (a *Applier) Plan(desired *render.Ruleset) (*Plan, uint32, error) {
	current, generation, err := a.kernel.Read()
	if err != nil {
		return nil, 0, err
	}
	return Diff(current, Settle(current, desired)), generation, nil
}

// attempts is how often a commit is tried while others change the ruleset.
const attempts = 20

// Apply commits what is missing and returns it. When the ruleset is as desired
// already, nothing is sent to the kernel. After an error that leaves it open
// whether the transaction took place, the kernel is read again.
func (a *Applier) Apply(desired *render.Ruleset) (*Plan, error) {
	done, unknown := &Plan{}, &Plan{}
	var last error
	for attempt := range attempts {
		time.Sleep(time.Duration(attempt) * time.Millisecond)
		plan, generation, err := a.Plan(desired)
		if err != nil {
			return nil, err
		}
		if plan.Empty() {
			return merge(done, unknown), nil
		}
		unknown = &Plan{}
		last = a.commit(plan, generation)
		if errors.Is(last, unix.EBUSY) && plan.removes() {
			// Before kernel 6.2 a chain stays in use for a moment after the
			// last element that went to it.
			plan = plan.withoutRemovals()
			if plan.Empty() {
				continue
			}
			if last = a.commit(plan, generation); last == nil {
				done = merge(done, plan)
				continue
			}
		}
		switch {
		case last == nil:
			return merge(done, plan), nil
		case errors.Is(last, unix.ENOENT) && plan.unbinds():
			// A binding ran out between the reading and the deletion.
		case !retryable(last):
			return nil, last
		}
		unknown = plan
		a.log.Debug("apply is tried again", "attempt", attempt+1, "error", last)
	}
	if errors.Is(last, unix.EBUSY) {
		a.log.Info("unused chains are left for the next change: the kernel still refers to them", "error", last)
		return done, nil
	}
	return nil, fmt.Errorf("apply %d times: %w", attempts, last)
}

// retryable tells whether an error says nothing about the transaction itself:
// another process was faster (ERESTART), or the answer was lost.
func retryable(err error) bool {
	return errors.Is(err, unix.ERESTART) || errors.Is(err, unix.ENOBUFS) ||
		errors.Is(err, unix.EINTR) || errors.Is(err, errNoAnswer)
}

func (a *Applier) commit(p *Plan, generation uint32) error {
	start := time.Now()
	size, err := a.kernel.Commit(p, generation)
	if err != nil {
		return err
	}
	a.log.Debug("transaction committed", "changes", len(p.Changes), "messages", size.Messages,
		"bytes", size.Bytes, "duration", time.Since(start))
	return nil
}

func merge(a, b *Plan) *Plan {
	return &Plan{Changes: append(a.Changes, b.Changes...)}
}
