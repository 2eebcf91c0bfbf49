package metrics

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Paths is what the metrics server answers besides metrics. What is not set
// answers 404.
type Paths struct {
	// Configz returns the whole body of /configz, a JSON object (11.3).
	Configz func() ([]byte, error)
	// Statusz serves /statusz.
	Statusz bool
	// Flags returns the flags and their values for /flagz.
	Flags func() map[string]string
	// Status serves /status.
	Status http.Handler
	// Profiling serves /debug/pprof/, and /debug/flags/v if SetVerbosity is
	// there, which sets the level of detail in the log.
	Profiling    bool
	SetVerbosity func(level uint32) error
}

const (
	// maxScrapes is how many scrapes are answered at once; further ones get 503.
	maxScrapes = 4
	// scrapeTimeout is how long a client may take to read an answer. The server
	// has a longer one, for profiles.
	scrapeTimeout = 30 * time.Second
)

// Handler answers the paths of the metrics server (11.2).
func (s *Set) Handler(p Paths) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", s.expose(s.registry))
	mux.Handle("/metrics/slis", s.expose(s.answers.slis))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		s.answers.check("ping", "healthz", true)
		writeText(w, "ok")
	})
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "nftables") })
	if p.Configz != nil {
		mux.HandleFunc("/configz", func(w http.ResponseWriter, _ *http.Request) { s.writeConfig(w, p.Configz) })
	}
	if p.Statusz {
		mux.HandleFunc("/statusz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, s.statusText()) })
	}
	if p.Flags != nil {
		mux.HandleFunc("/flagz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, flagsText(p.Flags())) })
	}
	if p.Status != nil {
		mux.Handle("/status", p.Status)
	}
	if p.Profiling {
		serveProfiles(mux)
		if p.SetVerbosity != nil {
			mux.HandleFunc("/debug/flags/v", func(w http.ResponseWriter, r *http.Request) { setVerbosity(w, r, p.SetVerbosity) })
		}
	}
	return mux
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

// scrapeLog receives what goes wrong while metrics are served.
type scrapeLog struct{ log *slog.Logger }

// Println is called for each metric. A client that has hung up lacks none, and
// must not fill the log.
func (l scrapeLog) Println(problem ...any) {
	for _, p := range problem {
		if err, ok := p.(error); ok && errors.As(err, new(net.Error)) {
			l.log.Debug("metrics are not taken", "error", err)
			return
		}
	}
	l.log.Warn("metrics are incomplete", "error", strings.TrimSpace(fmt.Sprintln(problem...)))
}

func serveProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

func (s *Set) writeConfig(w http.ResponseWriter, config func() ([]byte, error)) {
	body, err := config()
	if err != nil {
		s.log.Error("configuration cannot be shown", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", body)
}

// debugging is what people read above texts that may change at any time.
const debugging = "For people: what follows here may change in any version.\n\n"

func (s *Set) statusText() string {
	var b strings.Builder
	b.WriteString("nftproxy statusz\n" + debugging)
	fmt.Fprintf(&b, "Started: %s\n", s.started.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "Up: %s\n", time.Since(s.started).Round(time.Second))
	fmt.Fprintf(&b, "Version: %s\n", s.version)
	fmt.Fprintf(&b, "Go version: %s\n", runtime.Version())
	fmt.Fprintf(&b, "Platform: %s\n", platform)
	return b.String()
}

func flagsText(flags map[string]string) string {
	var b strings.Builder
	b.WriteString("nftproxy flagz\n" + debugging)
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(&b, "%s=%s\n", name, flags[name])
	}
	return b.String()
}

// setVerbosity answers as Kubernetes components do.
func setVerbosity(w http.ResponseWriter, r *http.Request, set func(uint32) error) {
	if r.Method != http.MethodPut {
		http.Error(w, "unsupported http method: use PUT", http.StatusNotAcceptable)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		http.Error(w, "read request body: "+err.Error(), http.StatusBadRequest)
		return
	}
	text := strings.TrimSpace(string(body))
	level, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		http.Error(w, fmt.Sprintf("%q is no level: send a whole number, 0 or more", text), http.StatusBadRequest)
		return
	}
	if err := set(uint32(level)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeText(w, fmt.Sprintf("successfully set klog.logging.verbosity to %d\n", level))
}

func writeText(w http.ResponseWriter, text string) {
	write(w, "text/plain; charset=utf-8", []byte(text))
}

// write answers 200. A client that has gone away is no concern of ours.
func write(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}
