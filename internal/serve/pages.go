package serve

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pages are the pages about a process that Kubernetes components have. Those of
// an unset field answer 404.
type Pages struct {
	// Pinged is called for every request of /healthz.
	Pinged func()
	// Configz returns the whole body of /configz, a JSON object (11.3).
	Configz func() ([]byte, error)
	// Version is that of the program, for /statusz; empty: there is no such page.
	Version string
	// Flags returns the flags and their values for /flagz.
	Flags func() map[string]string
	// Profiling serves /debug/pprof/, and /debug/flags/v with SetVerbosity, which
	// sets the level of detail in the log.
	Profiling    bool
	SetVerbosity func(level uint32) error
	Log          *slog.Logger
}

// Handle serves the pages (11.2).
func (p Pages) Handle(mux *http.ServeMux) {
	if p.Pinged != nil {
		mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
			p.Pinged()
			writeText(w, "ok")
		})
	}
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "nftables") })
	if p.Configz != nil {
		mux.HandleFunc("/configz", p.writeConfig)
	}
	if p.Version != "" {
		started := time.Now()
		mux.HandleFunc("/statusz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, statusText(p.Version, started)) })
	}
	if p.Flags != nil {
		mux.HandleFunc("/flagz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, flagsText(p.Flags())) })
	}
	if p.Profiling {
		serveProfiles(mux)
		if p.SetVerbosity != nil {
			mux.HandleFunc("/debug/flags/v", func(w http.ResponseWriter, r *http.Request) { setVerbosity(w, r, p.SetVerbosity) })
		}
	}
}

func serveProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

func (p Pages) writeConfig(w http.ResponseWriter, _ *http.Request) {
	body, err := p.Configz()
	if err != nil {
		p.Log.Error("configuration cannot be shown", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", body)
}

// debugging precedes texts that may change at any time.
const debugging = "For people: what follows here may change in any version.\n\n"

func statusText(version string, started time.Time) string {
	var b strings.Builder
	b.WriteString("nftproxy statusz\n" + debugging)
	fmt.Fprintf(&b, "Started: %s\n", started.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "Up: %s\n", time.Since(started).Round(time.Second))
	fmt.Fprintf(&b, "Version: %s\n", version)
	fmt.Fprintf(&b, "Go version: %s\n", runtime.Version())
	fmt.Fprintf(&b, "Platform: %s/%s\n", runtime.GOOS, runtime.GOARCH)
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

// write answers 200. A client that has disconnected is no error.
func write(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}
