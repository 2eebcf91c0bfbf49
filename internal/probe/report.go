package probe

import (
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
)

const (
	// reportTime is the time in which at most [budget.HealthLines] transitions are logged one
	// by one; the others are counted.
	reportTime = time.Second
	// localPause is the time between two messages about checks that cannot be made.
	localPause = time.Minute
)

// report logs transitions.
type report struct {
	until              time.Time // end of the time; zero: nothing was logged
	lines              int
	failing, recovered int // not logged
	localLogged        time.Time
}

// add logs transitions.
func (r *report) add(batch []Transition, now time.Time, log *slog.Logger) {
	for i := range batch {
		t := &batch[i]
		if r.until.IsZero() {
			r.until = now.Add(reportTime)
		}
		r.lines++
		switch {
		case r.lines <= budget.HealthLines && t.Healthy:
			log.Info("endpoint healthy again", "service", t.Service, "endpoint", t.Address)
		case r.lines <= budget.HealthLines:
			log.Warn("endpoint fails its health check", "service", t.Service, "endpoint", t.Address, "error", t.Message)
		case t.Healthy:
			r.recovered++
		default:
			r.failing++
		}
	}
}

// end logs how many transitions were not, when the time is over.
func (r *report) end(now time.Time, log *slog.Logger) {
	if r.until.IsZero() || r.until.After(now) {
		return
	}
	if r.failing+r.recovered > 0 {
		log.Warn("health changed (more endpoints)", "failing", r.failing, "recovered", r.recovered)
	}
	*r = report{localLogged: r.localLogged}
}

// local logs that checks cannot be made, now and then.
func (r *report) local(err error, now time.Time, log *slog.Logger) {
	if !r.localLogged.IsZero() && now.Sub(r.localLogged) < localPause {
		return
	}
	r.localLogged = now
	log.Error("health checks cannot be made; endpoints stay as they are", "error", err)
}
