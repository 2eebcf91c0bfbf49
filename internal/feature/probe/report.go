package probe

import (
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/nftproxy/nftproxy/internal/words"
)

const (
	// reportTime is the time in which about [budget.HealthLines] transitions are logged one
	// by one; the others are counted.
	reportTime = time.Second
	// localPause is the time between two messages about checks that cannot be made.
	localPause = time.Minute
)

type report struct {
	until              time.Time // when others are counted; zero: there are none
	lines              *rate.Limiter
	failing, recovered int // not logged
	localLogged        time.Time
	in                 words.Vocabulary // for what is not logged
}

// add logs transitions: those of one address, of all its Services, by one line, because they have
// one cause.
func (r *report) add(batch []Transition, now time.Time, log *slog.Logger) {
	for _, group := range byAddress(batch) {
		t := group.first
		if r.until.IsZero() {
			r.in = t.Words
		} else if r.in != t.Words {
			r.in = words.Mixed
		}
		switch allowed := r.lines.AllowN(now, 1); {
		case allowed && t.Healthy:
			log.Info(t.Words.Text("endpoint healthy again"), group.attributes()...)
		case allowed:
			log.Warn(t.Words.Text("endpoint fails its health check"), append(group.attributes(), "error", t.Message)...)
		case t.Healthy:
			r.recovered += group.services
		default:
			r.failing += group.services
		}
	}
	if r.until.IsZero() && r.failing+r.recovered > 0 {
		r.until = now.Add(reportTime)
	}
}

// group has the transitions of an address to the same health.
type group struct {
	first    *Transition
	services int
}

// byAddress returns the groups of a batch, in the order of their first transitions.
func byAddress(batch []Transition) (out []group) {
	type key struct {
		address netip.Addr
		healthy bool
	}
	at := make(map[key]int)
	for i := range batch {
		t := &batch[i]
		k := key{t.Address, t.Healthy}
		n, known := at[k]
		if !known {
			n = len(out)
			at[k], out = n, append(out, group{first: t})
		}
		out[n].services++
		if t.Service.Compare(out[n].first.Service) < 0 {
			out[n].first = t
		}
	}
	return out
}

func (g *group) attributes() []any {
	t := g.first
	out := []any{"service", t.Service, "endpoint", t.Address}
	if g.services > 1 {
		out = append(out, "services", g.services)
	}
	if t.Name != "" {
		out = append(out, "name", t.Name)
	}
	return out
}

// end logs how many transitions were not, when the time is over.
func (r *report) end(now time.Time, log *slog.Logger) {
	if r.until.IsZero() || r.until.After(now) {
		return
	}
	log.Warn(r.in.Text("health changed (more endpoints)"), "failing", r.failing, "recovered", r.recovered)
	r.until, r.failing, r.recovered = time.Time{}, 0, 0
}

// local logs that checks cannot be made, now and then.
func (r *report) local(in words.Vocabulary, err error, now time.Time, log *slog.Logger) {
	if !r.localLogged.IsZero() && now.Sub(r.localLogged) < localPause {
		return
	}
	r.localLogged = now
	log.Error(in.Text("health checks cannot be made; endpoints stay as they are"), "error", err)
}
