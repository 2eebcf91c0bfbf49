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

// Process is what the pages of a process answer from.
type Process interface {
	Pinged()                         // is called for every request of /healthz
	Configz() ([]byte, error)        // the body of /configz, a JSON object (11.3)
	Flags() map[string]string        // for /flagz
	SetVerbosity(level uint32) error // of the log
}

// Pages are the debugging pages of Kubernetes components.
type Pages struct {
	Process Process // nil: there are no pages that need it
	Version string  // of the program, for /statusz; empty: there is no such page
	Flagz   bool    // serves /flagz
	// Profiling serves /debug/pprof/, and /debug/flags/v, which sets the verbosity of the log.
	Profiling bool
	Log       *slog.Logger
}

// List returns the pages that are set (11.2).
func (p Pages) List() (out []Page) {
	add := func(set bool, page Page) {
		if set {
			out = append(out, page)
		}
	}
	started := time.Now()
	add(p.Process != nil, Page{Path: "/healthz", About: "ok while this server answers", Public: true, Handler: newTextHandler(func() string {
		p.Process.Pinged()
		return "ok"
	})})
	add(true, Page{Path: "/proxyMode", Handler: newTextHandler(func() string { return "nftables" })})
	add(p.Process != nil, Page{Path: "/configz", About: "the configuration in effect, as JSON", Handler: http.HandlerFunc(p.writeConfig)})
	add(p.Process != nil && p.Flagz, Page{Path: "/flagz", About: "the flags in effect", Handler: newTextHandler(func() string { return flagsText(p.Process.Flags()) })})
	add(p.Version != "", Page{Path: "/statusz", About: "version and uptime", Handler: newTextHandler(func() string { return statusText(p.Version, started) })})
	if p.Profiling {
		out = append(out, p.profilePages()...)
	}
	return out
}

// profilePages returns the pages about the process that are off by default.
func (p Pages) profilePages() []Page {
	out := []Page{
		{Path: "/debug/pprof/", About: "profiles of the process", Handler: http.HandlerFunc(pprof.Index)},
		{Path: "/debug/pprof/profile", Handler: http.HandlerFunc(pprof.Profile)},
		// The tool pprof sends addresses with POST.
		{Path: "/debug/pprof/symbol", Methods: []string{http.MethodGet, http.MethodHead, http.MethodPost}, Handler: http.HandlerFunc(pprof.Symbol)},
		{Path: "/debug/pprof/trace", Handler: http.HandlerFunc(pprof.Trace)},
	}
	if p.Process != nil {
		out = append(out, Page{Path: "/debug/flags/v", Methods: []string{http.MethodPut}, Handler: http.HandlerFunc(p.setVerbosity)})
	}
	return out
}

// newTextHandler returns a handler that answers with a text.
func newTextHandler(text func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, text()) })
}

func (p Pages) writeConfig(w http.ResponseWriter, _ *http.Request) {
	body, err := p.Process.Configz()
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
func (p Pages) setVerbosity(w http.ResponseWriter, r *http.Request) {
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
	if err := p.Process.SetVerbosity(uint32(level)); err != nil {
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
