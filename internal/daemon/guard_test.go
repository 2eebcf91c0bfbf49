package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
)

// TestWatchAgain: 13.10. A watch that fails is opened again until that succeeds, one error is logged for all failures
// in a row, and the end does not wait.
func TestWatchAgain(t *testing.T) {
	broken := errors.New("out of memory")
	for name, c := range map[string]struct {
		results []error // of the watch, nil: an intervention
		logged  int
		took    time.Duration
		want    error
	}{
		"works":                     {[]error{nil, nil, kernel.ErrStopped}, 0, 0, nil},
		"fails three times":         {[]error{nil, broken, broken, broken, nil, kernel.ErrStopped}, 1, 3 * watchAgain, nil},
		"fails twice, apart":        {[]error{broken, nil, broken, nil, kernel.ErrStopped}, 2, 2 * watchAgain, nil},
		"ends while it is not open": {[]error{nil, broken}, 1, 0, broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var interventions, logged int
				results := c.results
				next := func() (i kernel.Intervention, err error) {
					if err, results = results[0], results[1:]; len(results) == 0 {
						cancel()
					}
					return i, err
				}
				begin := time.Now()
				err := forwardReports(ctx, next, func(kernel.Intervention) { interventions++ }, func(error) { logged++ })
				if want := len(slices.DeleteFunc(slices.Clone(c.results), func(err error) bool { return err != nil })); err != c.want || interventions != want || logged != c.logged {
					t.Errorf("%d interventions, %d errors logged, %v; want %d, %d, %v", interventions, logged, err, want, c.logged, c.want)
				}
				if took := time.Since(begin); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
			})
		})
	}
}
