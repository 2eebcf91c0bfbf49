package prove

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Rulesets are the rules before and after a change.
type Rulesets struct {
	Now     *bytecode.Ruleset // of all programs
	Planned *bytecode.Ruleset // what the change makes of them
	Wanted  *bytecode.Ruleset // what the objects ask for, without other programs
	// Foreign are tables of another proxy, whose rules name clients one by one.
	Foreign []string
}

// Change is packets that experience something else afterwards.
type Change struct {
	To   []string // destinations, as "tcp 10.96.0.10:80"
	From []string // clients
	Difference
}

// Difference is what packets experience. It is comparable.
type Difference struct {
	Before string
	After  string
	// Planned is what they experience with the planned rules, if that is not After: then the plan does
	// not explain the change.
	Planned string
}

// Comparison is the result of Compare.
type Comparison struct {
	Classes  int
	Packets  int // of the classes, those that change
	Changes  []Change
	Unsolved []Change // that the plan does not explain
	// Foreign are expressions of other programs that are not understood, and that a packet meets.
	Foreign []string
	// Wrong are packets that the wanted rules do not treat as the objects ask for.
	Wrong []Example
}

// Compare follows the packets of all classes of some objects, and those that rules name, through the
// rules before and after a change. The last of the worlds is the one that is wanted.
func Compare(r Rulesets, worlds ...*World) *Comparison {
	wanted := worlds[len(worlds)-1]
	c := &comparer{wanted: wanted, out: &Comparison{}, seen: make(map[bytecode.Packet]bool), index: make(map[place]int)}
	for i, rules := range []*bytecode.Ruleset{r.Now, r.Planned, r.Wanted} {
		c.machines[i] = bytecode.Machine{Rules: rules, Local: wanted.local, Out: outsideInterface}
	}
	named, sources := r.Now.Named(r.Foreign...)
	c.sources = some(sources)
	for _, w := range worlds {
		for class := range w.Classes {
			c.check(class)
		}
	}
	for _, d := range named {
		wanted.classesTo(d, c.check)
	}
	c.out.Changes, c.out.Unsolved = joined(c.out.Changes), joined(c.out.Unsolved)
	c.out.Wrong = wanted.Prove(r.Wanted).Examples
	return c.out
}

type comparer struct {
	wanted   *World
	machines [3]bytecode.Machine // now, planned, wanted
	sources  []netip.Addr        // that rules of other programs name
	out      *Comparison
	seen     map[bytecode.Packet]bool
	index    map[place]int // of the changes
}

// check compares the packets of a class, and those that other clients send to the same destination.
func (c *comparer) check(class Class) {
	c.follow(class)
	for _, a := range c.sources {
		if a.BitLen() == class.Destination.BitLen() && class.Known == bytecode.New {
			other := class
			other.Source, other.In, other.Client, other.Exceeds = a, outsideInterface, "named in a rule", false
			c.follow(other)
		}
	}
}

func (c *comparer) follow(class Class) {
	if c.seen[class.Packet] {
		return
	}
	c.seen[class.Packet] = true
	c.out.Classes++
	var results [3][]bytecode.Result
	for i := range c.machines {
		results[i] = withoutPriority(c.machines[i].Follow(class.Packet))
		for _, r := range results[i] {
			if r.Verdict == bytecode.Unknown && !slices.Contains(c.out.Foreign, r.Why) {
				c.out.Foreign = append(c.out.Foreign, r.Why)
			}
		}
	}
	now, planned, wanted := results[0], results[1], results[2]
	if same(now, wanted) && same(planned, wanted) {
		return
	}
	c.out.Packets++
	change := place{class.destination(), Difference{Before: summary(now), After: summary(wanted)}}
	list := &c.out.Changes
	if !same(planned, wanted) {
		change.Planned, list = summary(planned), &c.out.Unsolved
	}
	i, known := c.index[change]
	if !known {
		i = len(*list)
		c.index[change] = i
		*list = append(*list, Change{To: []string{change.to}, Difference: change.Difference})
	}
	(*list)[i].From = append((*list)[i].From, class.from())
}

// place is what packets to a destination experience.
type place struct {
	to string
	Difference
}

// joined joins changes for the same clients.
func joined(all []Change) (out []Change) {
	type alike struct {
		from string
		Difference
	}
	index := make(map[alike]int)
	for _, c := range all {
		k := alike{strings.Join(c.From, ","), c.Difference}
		i, known := index[k]
		if !known {
			index[k] = len(out)
			out = append(out, c)
			continue
		}
		out[i].To = append(out[i].To, c.To...)
	}
	return out
}

// classesTo calls check with packets to what a rule names.
func (w *World) classesTo(d bytecode.Destination, check func(Class)) {
	addresses := []netip.Addr{d.Address}
	if !d.Address.IsValid() {
		addresses = []netip.Addr{w.nodeAddress(model.IPv4), w.nodeAddress(model.IPv6), w.unused(defaultPods[model.IPv4]), w.unused(defaultPods[model.IPv6])}
	}
	protocols := model.Protocols[:]
	if d.Protocol != 0 {
		protocols = []model.Protocol{model.Protocol(d.Protocol)}
	}
	for _, a := range addresses {
		for _, p := range protocols {
			port := d.Port
			if port == 0 {
				port = w.unusedPort(address{a, p})
			}
			for _, c := range w.clientsAt(a) {
				check(Class{bytecode.Packet{Protocol: uint8(p), Source: c.source, Destination: a, SourcePort: clientPort, Port: port, In: c.in}, c.who})
			}
		}
	}
}

// withoutPriority leaves out the priority of packets, which no client sees, and joins what is then
// equal.
func withoutPriority(all []bytecode.Result) (out []bytecode.Result) {
	for _, r := range all {
		r.Priority = 0
		i := slices.IndexFunc(out, func(o bytecode.Result) bool { return o.Outcome == r.Outcome })
		if i < 0 {
			out = append(out, r)
			continue
		}
		out[i].Share += r.Share
	}
	bytecode.Sort(out)
	return out
}

// sameShare is how much shares of endpoints may differ: weights are a number of slots.
const sameShare = 0.01

func same(a, b []bytecode.Result) bool {
	return slices.EqualFunc(a, b, func(a, b bytecode.Result) bool {
		return a.Outcome == b.Outcome && math.Abs(a.Share-b.Share) <= sameShare
	})
}

// summary returns outcomes in words.
func summary(all []bytecode.Result) string {
	var parts []string
	for _, r := range all[:min(len(all), mostOutcomes)] {
		parts = append(parts, r.String())
	}
	if n := len(all) - len(parts); n > 0 {
		parts = append(parts, fmt.Sprintf("%d others", n))
	}
	return strings.Join(parts, ", ")
}

// mostOutcomes limits the endpoints in a line.
const mostOutcomes = 4

// from returns the client, as "a pod" or "198.51.100.201 (named in a rule)".
func (c Class) from() string {
	text := c.Client
	if c.Client == "listed" || c.Client == "named in a rule" || c.Client == "the endpoint itself" {
		text = c.Source.String() + " (" + text + ")"
	}
	if state := c.connection(); state != "" {
		text += " (" + state + ")"
	}
	return text
}
