package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Observer prints events as they come: a line for each, and what to do below the first one of
// each reason.
type Observer struct {
	p         *terminal.Printer
	explained map[string]bool
	last      map[string]*api.Observed // by node
}

// Observed is the answer of a node. Without a name it is this one.
type Observed struct {
	Node string
	*api.Observed
}

// NewObserver returns an observer that writes to w.
func NewObserver(w io.Writer, paint bool) *Observer {
	o := &Observer{p: terminal.NewPrinter(w, ""), explained: make(map[string]bool), last: make(map[string]*api.Observed)}
	o.p.Colours = paint
	return o
}

// Add writes the events of an answer, after what is missing before them.
func (o *Observer) Add(r *api.Observed) error { return o.AddAll([]Observed{{"", r}}) }

// AddAll writes the events of several nodes in the order of their times, after what is missing
// before them.
func (o *Observer) AddAll(all []Observed) error {
	var events []*api.Observation
	now := time.Time{}
	for _, r := range all {
		o.gaps(r)
		o.last[r.Node] = r.Observed
		for i := range r.Events {
			events = append(events, &r.Events[i])
		}
		if now.Before(r.Time) {
			now = r.Time
		}
	}
	slices.SortStableFunc(events, func(a, b *api.Observation) int { return a.Time.Compare(b.Time) })
	for _, e := range events {
		o.event(e, now)
	}
	return o.p.Flush()
}

// gaps writes what has happened since the last answer: events that are lost, and a restart.
func (o *Observer) gaps(r Observed) {
	last := o.last[r.Node]
	if last == nil { // the first answer: what was lost before is in the totals
		last = &api.Observed{Instance: r.Instance, Lost: r.Lost}
	}
	line := func(c terminal.Colour, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if r.Node != "" {
			text = r.Node + ": " + text
		}
		o.p.Painted(c, "%s", text)
	}
	if last.Instance != r.Instance {
		line(terminal.Yellow, "nftproxy has started again; events in between are not known")
		last = &api.Observed{}
	}
	if r.Missed > 0 {
		line(terminal.Yellow, "%s no longer kept: there were too many at once", are(r.Missed))
	}
	if r.Lost > last.Lost {
		line(terminal.Yellow, "%s lost: the kernel has dropped them, because they were not read fast enough", are(r.Lost-last.Lost))
	}
	if r.Error != last.Error && r.Error != "" {
		line(terminal.Red, "%s", unread(r.Observed))
	}
}

// unread says for how long no events are read, and why.
func unread(r *api.Observed) string {
	return fmt.Sprintf("for %s, events are not read: %s", r.Time.Sub(r.Since).Round(time.Second), r.Error)
}

func are(n uint64) string {
	if n == 1 {
		return "1 event is"
	}
	return terminal.Count(int(n), "event") + " are"
}

func (o *Observer) event(e *api.Observation, now time.Time) {
	at, text := eventTime(e.Time, now), fmt.Sprintf("logged by a rule of another program: %q", e.Reason)
	why, advice, known := model.ReasonText(e.Reason)
	why, advice = e.Words().Text(why), e.Words().Text(advice)
	switch {
	case e.Ends != "" && known:
		text = fmt.Sprintf("%s, %s: %s", e.Ends, e.Reason, why)
	case known:
		text = fmt.Sprintf("%s: %s%s", e.Reason, why, extent(e))
	}
	client := e.Client
	if e.Pod != "" {
		client += " (" + e.Pod + ")"
	}
	to := e.Frontend + "/" + e.Protocol
	if s := e.ServiceText(); s != "" {
		to += " (" + s + ")"
	}
	if e.Endpoint != "" {
		to += " -> " + e.Endpoint
	}
	on := ""
	if e.Node != "" {
		on = e.Node + "  "
	}
	o.p.Line("%s  %s%s -> %s  %s", at, on, client, to, text)
	if advice != "" && !o.explained[e.Reason] {
		o.explained[e.Reason] = true
		o.p.Line("%s  %s", strings.Repeat(" ", len(at)), advice)
	}
}

// extent returns how long a connection that was served has lasted, and what it has carried.
func extent(e *api.Observation) string {
	if e.Outcome != model.Served.String() {
		return ""
	}
	text := fmt.Sprintf("; %s", time.Duration(e.Seconds*float64(time.Second)).Round(time.Millisecond))
	if e.Sent != nil && e.Received != nil {
		text += fmt.Sprintf(", %s sent, %s received", terminal.Count(int(*e.Sent), "byte"), terminal.Count(int(*e.Received), "byte"))
	}
	return text
}

// eventTime returns the local time, with the date unless that is today.
func eventTime(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// Totals writes how many events there were, and why others are missing.
func (o *Observer) Totals(r *api.Observed) error {
	if len(r.Events) == 0 {
		o.p.Line("no event matches")
	}
	text := terminal.Count(int(r.Total), "event") + " since nftproxy started"
	if r.Lost > 0 {
		text += fmt.Sprintf("; %d lost, because they were not read fast enough", r.Lost)
	}
	o.p.Line("%s", text)
	if r.Skipped > 0 {
		o.p.Painted(terminal.Yellow, "%s not followed: too many were open at the same time", terminal.Count(int(r.Skipped), "connection"))
	}
	if r.SampledFailed > 0 {
		o.p.Painted(terminal.Yellow, "%d of %s to endpoints failed: \"nftproxy status\" and \"nftproxy describe\" name the endpoints",
			r.SampledFailed, terminal.Count(int(r.Sampled), "sampled connection"))
	}
	return o.p.Flush()
}

// Refused writes who was refused by what in the last minutes.
func Refused(w io.Writer, r *api.Observed, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	if r.Error != "" {
		p.Painted(terminal.Red, "%s", unread(r))
	}
	p.Line("refused in the last %.0f minutes, of the samples that the rules log:", r.Minutes)
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		text := ""
		if why, advice, ok := model.ReasonText(reason); ok {
			text = ": " + r.Words.Text(why) + "; " + r.Words.Text(advice)
		}
		p.Line("  %d %s%s", r.Reasons[reason], reason, text)
	}
	if len(r.Refused) == 0 {
		p.Line("  no event matches")
		return p.Flush()
	}
	rows := [][]string{{"EVENTS", "CLIENT", "TO", "REASON", "LAST"}}
	for i := range r.Refused {
		c := &r.Refused[i]
		client, to := c.Client, c.ServiceText()
		if c.Pod != "" {
			client += " (" + c.Pod + ")"
		}
		if to == "" {
			to = c.Frontend + "/" + c.Protocol
		}
		rows = append(rows, []string{fmt.Sprint(c.Events), client, to, c.Reason, r.Time.Sub(c.Last).Round(time.Second).String() + " ago"})
	}
	p.WriteString("\n")
	p.Table("", rows)
	return p.Flush()
}
