package probe

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/loglimit"
)

const (
	// reportTime is the time in which about [budget.HealthLines] transitions are logged one
	// by one; the others are counted.
	reportTime = time.Second
	// localPause is the time between two messages about checks that cannot be made.
	localPause = time.Minute
)

// report logs transitions.
type report struct {
	until              time.Time // when others are counted; zero: there are none
	lines              *rate.Limiter
	failing, recovered int // not logged
	localLogged        time.Time
}

func newReport() report {
	return report{lines: loglimit.Limiter(budget.HealthLines, reportTime)}
}

// add logs transitions.
func (r *report) add(batch []Transition, now time.Time, log *slog.Logger) {
	for i := range batch {
		t := &batch[i]
		switch allowed := r.lines.AllowN(now, 1); {
		case allowed && t.Healthy:
			log.Info("endpoint healthy again", "service", t.Service, "endpoint", t.Address)
		case allowed:
			log.Warn("endpoint fails its health check", "service", t.Service, "endpoint", t.Address, "error", t.Message)
		case t.Healthy:
			r.recovered++
		default:
			r.failing++
		}
	}
	if r.until.IsZero() && r.failing+r.recovered > 0 {
		r.until = now.Add(reportTime)
	}
}

// end logs how many transitions were not, when the time is over.
func (r *report) end(now time.Time, log *slog.Logger) {
	if r.until.IsZero() || r.until.After(now) {
		return
	}
	log.Warn("health changed (more endpoints)", "failing", r.failing, "recovered", r.recovered)
	r.until, r.failing, r.recovered = time.Time{}, 0, 0
}

// local logs that checks cannot be made, now and then.
func (r *report) local(err error, now time.Time, log *slog.Logger) {
	if !r.localLogged.IsZero() && now.Sub(r.localLogged) < localPause {
		return
	}
	r.localLogged = now
	log.Error("health checks cannot be made; endpoints stay as they are", "error", err)
}
