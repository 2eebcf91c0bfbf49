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

// Pages are the debugging pages of Kubernetes components. The page of an unset field
// answers 404.
type Pages struct {
	Pinged  func()                   // called for every request of /healthz
	Configz func() ([]byte, error)   // body of /configz, a JSON object (11.3)
	Version string                   // of the program, for /statusz
	Flags   func() map[string]string // for /flagz
	// Profiling serves /debug/pprof/, and /debug/flags/v with SetVerbosity, which
	// sets the verbosity of the log.
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
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		if p.SetVerbosity != nil {
			mux.HandleFunc("/debug/flags/v", func(w http.ResponseWriter, r *http.Request) { setVerbosity(w, r, p.SetVerbosity) })
		}
	}
}

func (p Pages) writeConfig(w http.ResponseWriter, _ *http.Request) {
	body, err := p.Configz()
	if err != nil {
		p.Log.Error("cannot encode the configuration", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", body)
}

const unstable = "This format may change in any version. Do not parse it.\n\n"

func statusText(version string, started time.Time) string {
	return fmt.Sprintf("nftproxy statusz\n%sStarted: %s\nUp: %s\nVersion: %s\nGo version: %s\nPlatform: %s/%s\n", unstable,
		started.UTC().Format(time.RFC3339), time.Since(started).Round(time.Second), version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func flagsText(flags map[string]string) string {
	var b strings.Builder
	b.WriteString("nftproxy flagz\n" + unstable)
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
		http.Error(w, fmt.Sprintf("%q is not a level: send a whole number, 0 or more", text), http.StatusBadRequest)
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
