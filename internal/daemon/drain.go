package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// followDrains follows the file with drained endpoints. A node may have no watch left for
// it, which keeps nothing from being served.
func (d *Daemon) followDrains() {
	path := d.Config.Own.DrainFile
	if path == "" {
		return
	}
	watcher, err := (&files.Reader{Paths: []string{path}}).NewWatcher() // before the file is read, so that no change is lost
	watch := func(context.Context, func()) error { return err }
	if err == nil {
		watch = watcher.Run
	}
	d.drains = drain.Follow(drain.File{Path: path, State: d.StateDirectory}, watch, d.Log)
}

// serveDrains answers with what is drained, and what draining other endpoints means. It holds
// the answers in memory.
func (w *work) serveDrains(rw http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()["target"]
	if len(asked) > budget.DrainTargets {
		http.Error(rw, fmt.Sprintf("%d endpoints are too many: at most %d", len(asked), budget.DrainTargets), http.StatusBadRequest)
		return
	}
	var targets []drain.Target
	for _, text := range asked {
		t, err := drain.Decode(text)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		targets = append(targets, t)
	}
	report := w.drainReport(targets)
	if begin, asked := r.URL.Query()["begin"]; asked {
		report.Endpoints = drain.Endpoints(begin[0], w.agent.Names(), w.agent.View)
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(report) // fails if the client is gone
}

func (w *work) drainReport(targets []drain.Target) *api.Drains {
	report := &api.Drains{Drained: []api.Drained{}}
	var latest drain.List
	if w.drains != nil {
		list, announced := w.drains.Announced()
		file := w.drains.File()
		report.File, report.State, report.Drained = file.Path, file.State, list.Report()
		report.Pending = w.unserved(announced) // after the list: its change is pending until it is in the kernel
		if len(targets) > 0 {
			latest = w.drains.Latest()
		}
		if p := w.drains.Problem(); p != nil {
			report.Error, report.Since, report.Unknown = p.Err.Error(), p.Since, p.Unknown
		}
	}
	if len(targets) > 0 {
		report.Asked = drain.Ask(targets, latest, w.agent.Names(), w.agent.View)
	}
	return report
}

// unserved reports whether a sync that was requested then has yet to succeed. Requests
// after it do not matter: in a busy cluster there is always one.
func (w *work) unserved(requested time.Time) bool {
	s := w.agent.State()
	return s.LastSync.IsZero() || !s.Pending.IsZero() && !s.Pending.After(requested)
}

// drainProblems returns why the list of drained endpoints cannot be used, for the status.
func (w *work) drainProblems() (out []api.Problem) {
	if w.drains == nil {
		return nil
	}
	if p := w.drains.Problem(); p != nil {
		reason := api.DrainFileUnusable
		if p.Unknown {
			reason = api.DrainsUnknown
		}
		out = append(out, api.Problem{Object: "Drain file", Reason: reason, Message: strings.ReplaceAll(p.Err.Error(), "\n", "; ")})
	}
	return out
}

// notes returns what operators should know, for the status.
func (w *work) notes() []api.Problem { return append(w.drainNotes(), w.machineNotes()...) }

// drainNotes returns what is drained, for the status.
func (w *work) drainNotes() (out []api.Problem) {
	if w.drains == nil {
		return nil
	}
	for _, e := range w.drains.List() {
		message := "no new connections, from nftproxy drain"
		if !e.Since.IsZero() {
			message += " at " + e.Since.Local().Format("2006-01-02 15:04:05")
		}
		out = append(out, api.Problem{Object: "Endpoint " + e.String(), Reason: api.EndpointDrained, Message: message})
	}
	return out
}
