package open

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/fair"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// document says what fills the table of connection tracking.
type document struct {
	// Entries is the number of all, and Max how many the kernel tracks at most (nf_conntrack_max). Share, here and in
	// rows, is the part of Max; absent: Max is not known.
	Entries int     `json:"entries"`
	Max     int     `json:"max,omitempty"`
	Share   float64 `json:"share,omitempty"`
	// Services has the service ports that were dialled, and Other the entries without one. With a filter, all lists
	// are about the Services that match, and Other is absent.
	Services list `json:"services"`
	Other    *row `json:"other,omitempty"`
	Clients  list `json:"clients"`
	States   list `json:"states"`

	words words.Vocabulary
}

// list has the rows with the most entries first, or in the order of their names.
type list struct {
	Rows []row `json:"rows"`
	// More is the number of rows that are left out, and MoreEntries that of their entries, with those of clients that are
	// not told apart.
	More        int `json:"more,omitempty"`
	MoreEntries int `json:"moreEntries,omitempty"`
}

// row is what the entries of a service port, client or state have in common.
type row struct {
	Namespace string  `json:"namespace,omitempty"`
	Service   string  `json:"service,omitempty"`
	Port      string  `json:"port,omitempty"`
	Client    string  `json:"client,omitempty"` // an address, or a /64 of IPv6
	Protocol  string  `json:"protocol,omitempty"`
	State     string  `json:"state,omitempty"`
	Entries   int     `json:"entries"`
	Share     float64 `json:"share,omitempty"`
	// Parts are the states of a service port, and the service ports of a client, most entries first, at most five.
	Parts []part `json:"parts,omitempty"`

	name string // for people
}

// part is some entries of a row.
type part struct {
	Name    string `json:"name"`
	Entries int    `json:"entries"`
}

// mostParts is how many parts a row has, and shownParts how many of these text shows.
const (
	mostParts  = 5
	shownParts = 3
)

// dimension is what entries are counted by.
type dimension uint8

const (
	byPort dimension = iota
	byClient
	byState
)

// common returns what a group has in common with others of its row; the zero value: it is of no Service, or of a client
// that is not told apart.
func (d dimension) common(g conntrack.Group) conntrack.Group {
	switch d {
	case byPort:
		return conntrack.Group{Port: g.Port}
	case byClient:
		return conntrack.Group{Client: g.Client}
	}
	return conntrack.Group{Protocol: g.Protocol, State: g.State}
}

// part returns the name of the part of its row that a group belongs to.
func (d dimension) part(g conntrack.Group) string {
	isServed := g.Port != model.PortName{}
	switch {
	case d == byPort && isServed:
		return g.State
	case d == byPort:
		return g.Protocol.String() + " " + g.State
	case isServed:
		return g.Port.String()
	}
	return otherName
}

const otherName = "other"

func newDocument(t *conntrack.Table, most int, q feature.Query, in words.Vocabulary) *document {
	d := &document{Entries: t.Entries, Max: most, words: in}
	d.Share = d.shareOf(t.Entries)
	matching := func(yield func(conntrack.Group, int) bool) {
		for g, n := range t.Groups {
			if strings.Contains(g.Port.Service.String(), q.Filter) && !yield(g, n) {
				return
			}
		}
	}
	var further *row
	d.Services, d.Other = d.newList(matching, byPort, q)
	d.Clients, further = d.newList(matching, byClient, q)
	d.States, _ = d.newList(matching, byState, q)
	if further != nil {
		d.Clients.MoreEntries += further.Entries
	}
	return d
}

func (d *document) shareOf(entries int) float64 {
	if d.Max == 0 {
		return 0
	}
	return float64(entries) / float64(d.Max)
}

// newList returns the rows that a query asks for, and the one without a common value; nil: there is none. Only these rows
// are made, since there may be as many as clients.
func (d *document) newList(groups iter.Seq2[conntrack.Group, int], by dimension, q feature.Query) (l list, none *row) {
	sums := make(map[conntrack.Group]int)
	for g, n := range groups {
		sums[by.common(g)] += n
	}
	var nothing conntrack.Group
	without := sums[nothing]
	delete(sums, nothing)
	shown := slices.SortedFunc(maps.Keys(sums), func(a, b conntrack.Group) int {
		larger := 0
		if !q.ByName {
			larger = cmp.Compare(sums[b], sums[a])
		}
		return cmp.Or(larger, compareNames(a, b))
	})
	for _, g := range shown[min(len(shown), q.Limit):] {
		l.More++
		l.MoreEntries += sums[g]
	}
	shown = shown[:len(shown)-l.More]
	parts := make(map[conntrack.Group]map[string]int)
	for _, g := range append(shown, nothing) {
		parts[g] = make(map[string]int)
	}
	for g, n := range groups {
		if of := parts[by.common(g)]; of != nil && by != byState {
			of[by.part(g)] += n
		}
	}
	l.Rows = make([]row, len(shown))
	for i, g := range shown {
		l.Rows[i] = d.newRow(g, sums[g], parts[g])
	}
	if without > 0 {
		r := d.newRow(nothing, without, parts[nothing])
		none = &r
	}
	return l, none
}

func compareNames(a, b conntrack.Group) int {
	return cmp.Or(a.Port.Compare(b.Port), a.Client.Addr().Compare(b.Client.Addr()), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.State, b.State))
}

func (d *document) newRow(g conntrack.Group, entries int, parts map[string]int) row {
	r := row{Namespace: g.Port.Service.Namespace, Service: g.Port.Service.Name, Port: g.Port.Port, State: g.State, Entries: entries, Share: d.shareOf(entries)}
	if protocol := cmp.Or(g.Protocol, g.Port.Protocol); protocol != 0 {
		r.Protocol = protocol.String()
	}
	switch {
	case r.Service != "":
		r.name = g.Port.String() + " (" + r.Protocol + ")"
	case g.Client.IsValid():
		r.Client = fair.ClientText(g.Client)
		r.name = r.Client
	case r.State != "":
		r.name = r.Protocol + " " + r.State
	default:
		r.name = otherName
	}
	names := slices.SortedFunc(maps.Keys(parts), func(a, b string) int { return cmp.Or(cmp.Compare(parts[b], parts[a]), cmp.Compare(a, b)) })
	for _, name := range names[:min(len(names), mostParts)] {
		r.Parts = append(r.Parts, part{name, parts[name]})
	}
	return r
}

// String returns the text for people. Numbers come first: a terminal may cut off the rest.
func (d *document) String() string {
	var text strings.Builder
	p := terminal.NewPrinter(&text, "")
	p.Words = d.words
	most := ""
	if d.Max > 0 {
		most = fmt.Sprintf(" of %d (%s)", d.Max, percent(d.Share))
	}
	p.Line("entries of connection tracking: %d%s", d.Entries, most)
	services := d.Services
	if d.Other != nil {
		services.Rows = append(slices.Clone(services.Rows), *d.Other)
	}
	if len(services.Rows) == 0 {
		p.Line("")
		p.Line("none matches")
	}
	printList(p, "SERVICE", "STATES", &services)
	printList(p, "CLIENT", "SERVICES", &d.Clients)
	printList(p, "STATE", "", &d.States)
	_ = p.Flush() // a strings.Builder does not fail
	return text.String()
}

func printList(p *terminal.Printer, name, parts string, l *list) {
	if len(l.Rows) == 0 {
		return
	}
	rows := [][]string{{"ENTRIES", "OF MAX", name, parts}}
	for _, r := range l.Rows {
		share := ""
		if r.Share > 0 {
			share = percent(r.Share)
		}
		texts := make([]string, len(r.Parts))
		for i, part := range r.Parts {
			texts[i] = fmt.Sprintf("%s %d", part.Name, part.Entries)
		}
		rows = append(rows, []string{fmt.Sprint(r.Entries), share, r.name, terminal.List(texts, shownParts)})
	}
	p.Line("")
	p.Table("", terminal.Filled(rows))
	switch {
	case l.More > 0:
		p.Line("and %d more, with %d entries", l.More, l.MoreEntries)
	case l.MoreEntries > 0:
		p.Line("and others, with %d entries", l.MoreEntries)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
