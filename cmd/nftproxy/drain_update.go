package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// drainUpdate is a change of the file that a command has made.
type drainUpdate struct {
	file          drain.File
	targets       []drain.Target
	undo          bool
	before, after drain.List
}

// update changes the file. Others wait, so that the effects are of all drains together.
func (o *drainOptions) update(ctx context.Context, file drain.File, targets []drain.Target) (*drainUpdate, error) {
	u := &drainUpdate{file: file, targets: targets, undo: o.undo}
	var err error
	if o.all {
		u.before, err = file.Clear()
		return u, err
	}
	u.after, err = file.Update(func(l drain.List) (drain.List, error) {
		u.before = l
		if o.undo {
			return l.Without(targets...)
		}
		report, err := o.ask(ctx, targets)
		if err == nil {
			err = o.checkEffects(report)
		}
		return l.With(time.Now(), targets...), err
	})
	return u, err
}

// checkEffects returns an error if a target is of no Service, or if connections to a
// Service would stop.
func (o *drainOptions) checkEffects(report *api.Drains) error {
	if report == nil || o.force {
		return nil
	}
	var errs []error
	for _, a := range report.Asked {
		if len(a.Services) == 0 {
			of := "no Service has"
			if a.Service != "" {
				of = "Service " + a.Service + " does not have"
			}
			errs = append(errs, fmt.Errorf("%s the endpoint %s%s", of, a.Endpoint, suggest.DidYouMean(a.DidYouMean)))
		}
		for _, s := range a.Services {
			if s.Stops != "" {
				errs = append(errs, fmt.Errorf("%s would have no other endpoint than %s: new connections would be %s", "Service "+s.Service, a.Endpoint, stopped(s.Stops)))
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

// stopped returns the participle of a verdict.
func stopped(verdict string) string {
	return map[string]string{"reject": "rejected", "drop": "dropped"}[verdict]
}

const (
	forceTimeout = 15 * time.Second // until a change of the file is in the kernel
	forcePause   = 20 * time.Millisecond
)

// await waits until the running nftproxy has applied an update, and returns its report; nil:
// it has ended. Updates by others do not matter, unless they revoke it.
func (o *drainOptions) await(ctx context.Context, u *drainUpdate) (*api.Drains, error) {
	for deadline := time.Now().Add(forceTimeout); ; {
		report, err := o.ask(ctx, nil)
		if err != nil || report == nil {
			return nil, err
		}
		applied, err := drain.FromReport(report.Drained)
		if err != nil {
			return nil, err
		}
		if holds := u.holds(applied); holds && !report.Pending {
			if u.undo {
				return report, nil
			}
			if report, err = o.ask(ctx, u.targets); err != nil || report == nil || inForce(report) {
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

func notApplied(report *api.Drains) error {
	why := "see \"nftproxy status\""
	if report.Error != "" {
		why = report.Error
	}
	return fmt.Errorf("the file is written, but the running nftproxy has not applied it after %s: %s", forceTimeout, why)
}

// holds reports whether a list has all changes of the update.
func (u *drainUpdate) holds(l drain.List) bool { return u.missing(l) == "" }

// missing returns the first endpoint that is not in a list as the update has it, or nothing.
func (u *drainUpdate) missing(l drain.List) string {
	if !u.undo {
		for _, t := range u.targets {
			if !l.Includes(t) {
				return t.String()
			}
		}
		return ""
	}
	for _, e := range u.before {
		if !u.after.Includes(e.Target) && l.Includes(e.Target) {
			return e.String()
		}
	}
	return ""
}

// revoked returns an error if another command has written the opposite since.
func (u *drainUpdate) revoked() error {
	list, err := u.file.Read()
	if err != nil {
		return nil // the daemon reports it
	}
	switch endpoint := u.missing(list); {
	case endpoint == "":
		return nil
	case u.undo:
		return fmt.Errorf("%s: another command has drained it again", endpoint)
	default:
		return fmt.Errorf("%s: another command has put it back into service", endpoint)
	}
}

// inForce reports whether no rule leads new connections to the targets.
func inForce(r *api.Drains) bool {
	for _, a := range r.Asked {
		if slices.ContainsFunc(a.Services, func(e api.Effect) bool { return !e.Drained }) {
			return false
		}
	}
	return true
}
