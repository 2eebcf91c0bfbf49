package takeover

import (
	"context"
	"errors"
	"fmt"
)

// Remove removes everything of kube-proxy from the network namespace of the
// calling thread. It goes on after a failure. It returns in words what is gone
// now, and an error that says of each thing that could not be removed why, and
// what to do. Nothing to remove is no error (12.59). m says what stays in place of
// the tables of nftables mode.
//
// Established connections go on, but for those that IPVS forwards.
func Remove(ctx context.Context, m Marker) (removed []string, err error) {
	return system{root: "/"}.remove(ctx, m)
}

// system is where things are removed: files are read below root.
type system struct{ root string }

func (s system) remove(ctx context.Context, m Marker) ([]string, error) {
	var r report
	r.nftables(m)
	for _, f := range families {
		r.legacy(ctx, s, f)
	}
	wasIPVS := r.ipvsInterface()
	r.ipsets(ctx, s) // which the rules referred to
	if wasIPVS {
		r.virtualServices(s)
	}
	return r.removed, errors.Join(r.errs...)
}

// report collects what was done.
type report struct {
	removed []string
	errs    []error
}

func (r *report) gone(format string, args ...any) {
	r.removed = append(r.removed, fmt.Sprintf(format, args...))
}

// left reports something that could not be removed. A nil error does nothing.
func (r *report) left(err error, format string, args ...any) {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("remove "+format+": %w", append(args, err)...))
	}
}
