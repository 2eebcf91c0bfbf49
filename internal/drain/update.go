package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Update is a change of the file by a command, which a daemon applies.
type Update struct {
	File    File
	Targets []Target // none: all, which is only to be undone
	Undo    bool
	Force   bool // also what no Service has, and the last endpoint of a Service
	// Ask asks the daemon about targets; nil without an error: there is none.
	Ask func(context.Context, []Target) (*model.Drains, error)

	before, after List
	words         words.Vocabulary // of the node
}

// Write changes the file, and returns the list. Others wait, so that the effects are of all
// drains together.
func (u *Update) Write(ctx context.Context) (List, error) {
	report, err := u.Ask(ctx, nil)
	if err != nil {
		return nil, err
	}
	if report != nil {
		u.words = report.Words // of the node; without a daemon, those of Kubernetes
	}
	if len(u.Targets) == 0 {
		u.before, err = u.File.Clear()
		return nil, err
	}
	u.after, err = u.File.Update(func(l List) (List, error) {
		u.before = l
		if u.Undo {
			return l.Without(u.words, u.Targets...)
		}
		report, err := u.Ask(ctx, u.Targets)
		if err == nil {
			err = u.checkEffects(report)
		}
		return l.With(time.Now(), u.Targets...), err
	})
	return u.after, err
}

// checkEffects returns an error if a target is of no Service, or if connections to a
// Service would stop.
func (u *Update) checkEffects(report *model.Drains) error {
	if report == nil || u.Force {
		return nil
	}
	var errs []error
	for _, a := range report.Asked {
		if len(a.Services) == 0 && a.Unknown != "" {
			errs = append(errs, errors.New(a.Unknown))
		} else if len(a.Services) == 0 {
			of := report.Words.Text("no Service has")
			if a.Service != "" {
				of = model.ServiceText{Service: a.Service, Balance: report.Words == words.Balance}.Object() + " does not have"
			}
			errs = append(errs, report.Words.Errorf("%s the endpoint %s%s", of, a.Endpoint, suggest.DidYouMean(a.DidYouMean)))
		}
		for _, s := range a.Services {
			if s.Stops != "" {
				stopped := map[string]string{"reject": "rejected", "drop": "dropped"}[s.Stops]
				errs = append(errs, words.Of(s.Balance).Errorf("%s would have no other endpoint than %s: new connections would be %s", s.Object(), a.Endpoint, stopped))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	const most = 10
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most], fmt.Errorf("and %d more", more))
	}
	return errors.Join(append(errs, errors.New("nothing is drained; --force drains all the same"))...)
}

const (
	forceTimeout = 15 * time.Second // until a change of the file is in the kernel
	forcePause   = 20 * time.Millisecond
)

// Await waits until the daemon, which has made a report before, has applied the update, and
// returns its report; nil: it has ended. Updates by others do not matter, unless they revoke it.
func (u *Update) Await(ctx context.Context, before *model.Drains) (*model.Drains, error) {
	if len(u.Targets) == 0 { // the file may be lost, and its last entries may not be in force yet
		listed, err := ListOf(before.Drained)
		if err != nil {
			return nil, err
		}
		u.before = append(listed, u.before...)
	}
	for deadline := time.Now().Add(forceTimeout); ; {
		report, err := u.Ask(ctx, nil)
		if err != nil || report == nil {
			return nil, err
		}
		list, err := ListOf(report.Drained)
		if err != nil {
			return nil, err
		}
		if holds := u.missing(list) == ""; holds && !report.Pending {
			if u.Undo {
				return report, nil
			}
			if report, err = u.Ask(ctx, u.Targets); err != nil || report == nil || inForce(report) {
				return report, err
			}
		} else if !holds {
			if err := u.revoked(); err != nil {
				return nil, err
			}
		}
		if time.Now().After(deadline) {
			return nil, notApplied(report)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(forcePause):
		}
	}
}

func notApplied(report *model.Drains) error {
	why := "see \"nftproxy status\""
	if report.Error != "" {
		why = report.Error
	}
	return fmt.Errorf("the file is written, but the running nftproxy has not applied it after %s: %s", forceTimeout, why)
}

// missing returns the first endpoint that is not in a list as the update has it, or nothing.
func (u *Update) missing(l List) string {
	if !u.Undo {
		for _, t := range u.Targets {
			if !l.Includes(t) {
				return t.Text(u.words)
			}
		}
		return ""
	}
	for _, e := range u.before {
		if !u.after.Includes(e.Target) && l.Includes(e.Target) {
			return e.Text(u.words)
		}
	}
	return ""
}

// revoked returns an error if another command has written the opposite since.
func (u *Update) revoked() error {
	list, err := u.File.Read()
	if err != nil {
		return nil // the daemon reports it
	}
	switch endpoint := u.missing(list); {
	case endpoint == "":
		return nil
	case u.Undo:
		return fmt.Errorf("%s: another command has drained it again", endpoint)
	default:
		return fmt.Errorf("%s: another command has put it back into service", endpoint)
	}
}

// inForce reports whether no rule leads new connections to the targets.
func inForce(r *model.Drains) bool {
	for _, a := range r.Asked {
		if slices.ContainsFunc(a.Services, func(e model.Effect) bool { return !e.Drained }) {
			return false
		}
	}
	return true
}
