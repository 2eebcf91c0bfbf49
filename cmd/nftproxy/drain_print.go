package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// drainResult is what drain and undrain report. The names of the JSON fields are stable.
type drainResult struct {
	File string `json:"file"`
	// NoDaemon is why no running nftproxy was asked, and Error why it cannot use the file.
	NoDaemon string `json:"noDaemon,omitempty"`
	Error    string `json:"error,omitempty"`
	// Unknown reports that no earlier list is known, so that nothing is drained.
	Unknown   bool            `json:"unknown,omitempty"`
	Endpoints []drainEndpoint `json:"endpoints"`
	// NotCounted is why connections are not counted.
	NotCounted string `json:"notCounted,omitempty"`

	left int // entries of the list
}

type drainEndpoint struct {
	Endpoint string         `json:"endpoint"`
	Service  string         `json:"service,omitempty"` // empty: all
	Drained  bool           `json:"drained"`
	Since    time.Time      `json:"since,omitzero"`
	Services []drainService `json:"services,omitempty"` // that have the endpoint
	Open     *openCount     `json:"open,omitempty"`     // connections

	frontends []string
}

type drainService struct {
	Service   string `json:"service"`
	Endpoints int    `json:"endpoints"`
	Left      int    `json:"left"` // take new connections
}

// openCount is a number of open connections.
type openCount struct {
	TCP   int `json:"tcp"`
	UDP   int `json:"udp"`
	SCTP  int `json:"sctp"`
	Total int `json:"total"`
}

func (n *openCount) add(p model.Protocol, more int) {
	switch p {
	case model.TCP:
		n.TCP += more
	case model.UDP:
		n.UDP += more
	default:
		n.SCTP += more
	}
	n.Total += more
}

// text returns for example "12 TCP, 3 UDP".
func (n *openCount) text() string {
	var parts []string
	for _, c := range []struct {
		n    int
		name string
	}{{n.TCP, "TCP"}, {n.UDP, "UDP"}, {n.SCTP, "SCTP"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.name))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// result returns what is known about targets, or about the whole list.
func (o *drainOptions) result(path string, report *api.Drains, list drain.List, targets []drain.Target) *drainResult {
	r := &drainResult{File: path, Endpoints: []drainEndpoint{}, left: len(list)}
	if o.noDaemon != nil && report == nil {
		r.NoDaemon = strings.ReplaceAll(o.noDaemon.Error(), "\n", "; ")
	}
	if report != nil {
		r.Error, r.Unknown = report.Error, report.Unknown
	}
	for i, t := range targets {
		e := drainEndpoint{Endpoint: t.Endpoint(), Drained: list.Includes(t)}
		if t.Service != (model.ServiceName{}) {
			e.Service = t.Service.String()
		}
		if j := slices.IndexFunc(list, func(e drain.Entry) bool { return e.Target == t }); j >= 0 {
			e.Since = list[j].Since
		}
		if report != nil && i < len(report.Asked) {
			for _, s := range report.Asked[i].Services {
				left := s.Left
				e.Services = append(e.Services, drainService{s.Service, s.Endpoints, left})
				e.frontends = append(e.frontends, s.Frontends...)
			}
		}
		r.Endpoints = append(r.Endpoints, e)
	}
	if !o.undo {
		r.count(targets)
	}
	return r
}

// frontends returns the addresses of the Services to which targets are limited.
func (r *drainResult) frontends(targets []drain.Target) map[model.ServiceName][]string {
	out := make(map[model.ServiceName][]string)
	for i, e := range r.Endpoints {
		if targets[i].Service != (model.ServiceName{}) {
			out[targets[i].Service] = e.frontends
		}
	}
	return out
}

func (r *drainResult) count(targets []drain.Target) {
	counts, err := countOpen(targets, r.frontends(targets))
	if err != nil {
		r.NotCounted = err.Error()
		return
	}
	for i := range r.Endpoints {
		r.Endpoints[i].Open = &counts[i]
	}
}

// countOpen counts the open connections of each target. If that is limited to a Service,
// they are those that clients made to its frontends, as far as these are known.
func countOpen(targets []drain.Target, frontends map[model.ServiceName][]string) ([]openCount, error) {
	groups := make(map[model.ServiceName][]netip.Addr)
	for _, t := range targets {
		groups[t.Service] = append(groups[t.Service], t.Address)
	}
	type key struct {
		service model.ServiceName
		address netip.Addr
	}
	found := make(map[key]map[conntrack.Endpoint]int)
	for service, addresses := range groups {
		var include func(*conntrack.Flow) bool
		if known := frontends[service]; len(known) > 0 {
			include = through(known)
		}
		flows, err := conntrack.Count(addresses, include)
		if err != nil {
			return nil, err
		}
		for e, n := range flows {
			k := key{service, e.Address.Addr()}
			if found[k] == nil {
				found[k] = make(map[conntrack.Endpoint]int)
			}
			found[k][e] = n
		}
	}
	out := make([]openCount, len(targets))
	for i, t := range targets {
		for e, n := range found[key{t.Service, t.Address}] {
			if t.Port == 0 || t.Port == e.Address.Port() {
				out[i].add(e.Protocol, n)
			}
		}
	}
	return out, nil
}

// through reports whether clients dialled one of these frontends.
func through(frontends []string) func(*conntrack.Flow) bool {
	known := make(map[model.Frontend]bool)
	var ranges []model.Frontend
	for _, text := range frontends {
		if f, err := api.ParseLabel(text); err == nil && f.IsRange() {
			ranges = append(ranges, f)
		} else if err == nil {
			known[f] = true
		}
	}
	return func(f *conntrack.Flow) bool {
		dialled := model.Frontend{Address: f.Dialled.Addr(), Protocol: f.Protocol, Port: f.Dialled.Port()}
		return known[dialled] || known[dialled.OnNode()] ||
			slices.ContainsFunc(ranges, func(r model.Frontend) bool { return r.Contains(dialled) })
	}
}

// write writes the result of drain or undrain.
func (r *drainResult) write(w io.Writer, o *drainOptions) error {
	if o.output == "json" {
		return terminal.JSON(w, r)
	}
	p := terminal.NewPrinter(w, "")
	p.Colours = o.paint
	for _, e := range r.Endpoints {
		e.print(p, r, o)
	}
	switch {
	case o.all && r.left == 0:
		p.Line("no endpoint is drained")
	case o.all:
		p.Line("all drains are ended; since then, another command has drained %s", terminal.Count(r.left, "endpoint"))
	}
	if r.NoDaemon != "" {
		p.Line("written to %s; no running nftproxy applies it now: %s", r.File, r.NoDaemon)
	}
	if r.NotCounted != "" {
		p.Line("connections are not counted: %s", r.NotCounted)
	}
	return p.Flush()
}

func (e *drainEndpoint) print(p *terminal.Printer, r *drainResult, o *drainOptions) {
	name := e.Endpoint
	if e.Service != "" {
		name += " of Service " + e.Service
	}
	switch {
	case o.undo:
		p.Painted(terminal.Green, "%s is not drained any more", name)
		return
	case e.Open == nil:
		p.Line("%s is drained: no new connections", name)
	case e.Open.Total == 0:
		p.Painted(terminal.Green, "%s is drained: no new connections, and none is open", name)
	default:
		p.Painted(terminal.Yellow, "%s is drained: no new connections; open: %s", name, e.Open.text())
	}
	for _, s := range e.Services {
		warning, colour := "", terminal.Colour("")
		if s.Left == 0 {
			warning, colour = ": new connections fail", terminal.Red
		}
		p.Painted(colour, "  Service %s: %d of %s left%s", s.Service, s.Left, terminal.Count(s.Endpoints, "endpoint"), warning)
	}
	if len(e.Services) == 0 && r.NoDaemon == "" {
		p.Line("  no Service has it now")
	}
}

// printList writes what is drained.
func (o *drainOptions) printList(c *cobra.Command, file drain.File, report *api.Drains) error {
	list, err := o.listed(file, report)
	if err != nil {
		return err
	}
	targets := make([]drain.Target, len(list))
	for i, e := range list {
		targets[i] = e.Target
	}
	if report != nil && len(targets) > 0 {
		if report, err = o.askAll(c.Context(), targets); err != nil {
			return err
		}
	}
	r := o.result(file.Path, report, list, targets)
	if o.output == "json" {
		return terminal.JSON(c.OutOrStdout(), r)
	}
	return r.table(c.OutOrStdout(), time.Now(), o.paint)
}

// listed returns the list in force, or that of the file.
func (o *drainOptions) listed(file drain.File, report *api.Drains) (drain.List, error) {
	if report == nil {
		return file.Read()
	}
	return drain.FromReport(report.Drained)
}

func (r *drainResult) table(w io.Writer, now time.Time, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	if r.Error != "" {
		consequence := "its last list stays in force"
		if r.Unknown {
			consequence = "no earlier list is known"
		}
		p.Painted(terminal.Red, "%s cannot be used, and %s:", r.File, consequence)
		for _, line := range strings.Split(r.Error, "\n") {
			p.Line("  %s", line)
		}
	}
	if len(r.Endpoints) == 0 {
		p.Line("no endpoint is drained")
		return p.Flush()
	}
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ENDPOINT\tSERVICES\tSINCE\tOPEN")
	for _, e := range r.Endpoints {
		since, open := "-", "-"
		if !e.Since.IsZero() {
			since = now.Sub(e.Since).Round(time.Second).String() + " ago"
		}
		if e.Open != nil {
			open = e.Open.text()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", e.Endpoint, terminal.Printable(e.serviceText(r)), since, open)
	}
	_ = t.Flush() // a strings.Builder does not fail
	p.WriteString(text.String())
	if r.NotCounted != "" {
		p.Line("connections are not counted: %s", r.NotCounted)
	}
	if r.NoDaemon != "" {
		p.Line("%s; this is from %s", r.NoDaemon, r.File)
	}
	return p.Flush()
}

// serviceText returns the Services that have an endpoint, the first ones if there are many.
func (e *drainEndpoint) serviceText(r *drainResult) string {
	const most = 3
	var names []string
	for _, s := range e.Services {
		names = append(names, s.Service)
	}
	switch {
	case len(names) == 0 && e.Service != "":
		return e.Service + " only"
	case len(names) == 0 && r.NoDaemon != "":
		return "all"
	case len(names) == 0:
		return "none"
	}
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if e.Service != "" {
		text += " only"
	}
	return text
}

// waiter waits for the end of connections.
type waiter struct {
	targets   []drain.Target
	frontends map[model.ServiceName][]string

	mu   sync.Mutex
	open openCount
}

// countPause is the time between two counts, and longer if a count takes long.
const countPause = time.Second

// wait returns nil when no connection is open.
func (w *waiter) wait(ctx context.Context) error {
	for {
		begun := time.Now()
		counts, err := countOpen(w.targets, w.frontends)
		if err != nil {
			return err
		}
		var sum openCount
		for _, n := range counts {
			sum.TCP, sum.UDP, sum.SCTP, sum.Total = sum.TCP+n.TCP, sum.UDP+n.UDP, sum.SCTP+n.SCTP, sum.Total+n.Total
		}
		w.mu.Lock()
		w.open = sum
		w.mu.Unlock()
		if sum.Total == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s to %s; the drain goes on, and \"nftproxy drain\" shows it", errOpen, sum.text(), targetNames(w.targets))
		case <-time.After(max(countPause, 4*time.Since(begun))):
		}
	}
}

// text returns the line that is shown on a terminal.
func (w *waiter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "waiting for the end of connections to " + targetNames(w.targets) + ": " + w.open.text()
}
