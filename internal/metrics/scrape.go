package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// maxScrapes is how many scrapes are answered at the same time; further ones
	// get 503.
	maxScrapes = 4
	// scrapeTimeout is how long a client may take to read an answer. The server
	// has a longer one, for profiles.
	scrapeTimeout = 30 * time.Second
)

// Handle serves the metrics (11.2).
func (s *Set) Handle(mux *http.ServeMux) {
	mux.Handle("/metrics", s.expose(s.registry))
	mux.Handle("/metrics/slis", s.expose(s.answers.slis))
}

// expose serves the metrics of a registry. One that cannot be read is logged
// and left out.
func (s *Set) expose(registry *prometheus.Registry) http.Handler {
	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            scrapeLog{s.log},
		MaxRequestsInFlight: maxScrapes,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not every kind of writer has deadlines; those of connections have.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout))
		scrape.ServeHTTP(w, r)
	})
}

// scrapeLog receives errors during scrapes.
type scrapeLog struct{ log *slog.Logger }

// Println is called for each metric. A client that has disconnected misses none,
// and must not fill the log.
func (l scrapeLog) Println(problem ...any) {
	for _, p := range problem {
		if err, ok := p.(error); ok && errors.As(err, new(net.Error)) {
			l.log.Debug("client does not read the metrics", "error", err)
			return
		}
	}
	l.log.Warn("metrics are incomplete", "error", strings.TrimSpace(fmt.Sprintln(problem...)))
}
