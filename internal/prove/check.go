package prove

import (
	"fmt"
	"io"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Report is the result of a proof.
type Report struct {
	Classes int
	Wrong   int
	// Examples are the first wrong ones.
	Examples []Example
}

// Example is a packet that does not experience what it must.
type Example struct {
	Class
	Want, Got string
}

// mostExamples limits what is kept of a proof.
const mostExamples = 10

// Prove compares what rules do with packets of all classes with what they must do.
func (w *World) Prove(rules *bytecode.Ruleset) *Report {
	p := newProver(w, rules, &Report{})
	for c := range w.Classes {
		p.check(c)
	}
	return p.report
}

// ProveBetween is for rules between two transactions: each packet must experience what the objects
// before ask for, or what these do. Each are those of a machine with its own addresses.
func (w *World) ProveBetween(before *World, rules *bytecode.Ruleset) *Report {
	report := &Report{}
	both := []*prover{newProver(before, rules, report), newProver(w, rules, report)}
	for _, c := range w.classesSince(before) {
		var wants []string
		var got []bytecode.Result
		why := ""
		for _, p := range both {
			want := p.world.expect(&c.Packet)
			want.loosen(&c, before, w)
			want.some = p.world == before && w.takesLocal(before, want.frontend, &c.Packet)
			got = p.machine.Follow(c.Packet)
			if why = want.differs(&c, got, p.world.tolerance(want.frontend)); why == "" {
				break
			}
			wants = append(wants, want.String())
		}
		passes := expectation{unchanged: true}
		if why != "" && before.expect(&c.Packet).unserved && w.expect(&c.Packet).unserved && passes.differs(&c, got, tolerance{}) == "" {
			why = "" // what bridges tables that make way serves frontends alone
		}
		c.Client += ", between two transactions"
		both[0].add(c, strings.Join(wants, ", or "), got, why)
	}
	return report
}

// classesSince returns the classes of before and of now, with the world that each is of. A packet of both is
// there once, if the machine has the same addresses.
func (w *World) classesSince(before *World) iter.Seq2[*World, Class] {
	return func(yield func(*World, Class) bool) {
		seen, isSame := make(map[bytecode.Packet]bool), slices.Equal(before.local, w.local)
		for _, of := range []*World{before, w} {
			for c := range of.Classes {
				if seen[c.Packet] {
					continue
				}
				seen[c.Packet] = isSame
				if !yield(of, c) {
					return
				}
			}
		}
	}
}

// loosen allows between two transactions what depends on ranges of ports at the address (4.46), and
// on which node an endpoint is that reaches itself (4.21), before or afterwards.
func (e *expectation) loosen(c *Class, before, after *World) {
	e.forwarded = e.forwarded && !before.hasRanges(c.Destination) && !after.hasRanges(c.Destination)
	for i := range e.targets {
		t := &e.targets[i]
		t.mayMasquerade = e.frontend != nil && t.at.Addr() == c.Source &&
			(before.isHairpin(e.frontend, c.Destination, t.at) || after.isHairpin(e.frontend, c.Destination, t.at))
	}
}

// takesLocal reports whether a frontend of before has other endpoints for clients outside of the cluster now, of
// which a packet is one. Its class has fewer slots before these get other endpoints (13.14).
func (w *World) takesLocal(before *World, f *frontend, p *bytecode.Packet) bool {
	if f == nil || f.kind == model.ClusterIP || f.service.ExternalPolicy != model.PolicyLocal || !before.isOutside(p) {
		return false
	}
	now := w.servingPacket(p)
	return now != nil && !slices.EqualFunc(f.local, now.local, func(a, b endpoint) bool { return a.at == b.at && a.weight == b.weight })
}

func newProver(w *World, rules *bytecode.Ruleset, r *Report) *prover {
	return &prover{world: w, machine: bytecode.Machine{Rules: rules, Local: w.local, Out: outsideInterface}, report: r}
}

type prover struct {
	world   *World
	machine bytecode.Machine
	report  *Report
}

func (p *prover) check(c Class) {
	want := p.world.expect(&c.Packet)
	got := p.machine.Follow(c.Packet)
	p.note(c, want, got, want.differs(&c, got, p.world.tolerance(want.frontend)))
	if c.Known != bytecode.New || len(want.targets) == 0 {
		return
	}
	if want.remembers > 0 {
		p.checkAffinity(c, want, got)
	}
	p.checkFull(c, want, got[0].Left)
	if w := p.world; w.limitsClients(want.frontend) && !c.Exceeds {
		p.checkLimits(c, want, got[0].Left)
	}
}

// note counts a class, and keeps it as an example if a reason says what is wrong.
func (p *prover) note(c Class, want expectation, got []bytecode.Result, why string) {
	p.add(c, want.String(), got, why)
}

func (p *prover) add(c Class, want string, got []bytecode.Result, why string) {
	p.report.Classes++
	if why == "" {
		return
	}
	if p.report.Wrong++; len(p.report.Examples) < mostExamples {
		p.report.Examples = append(p.report.Examples, Example{c, want + " (" + why + ")", textOf(got)})
	}
}

// tolerance is how much a share may differ: by the larger of the two.
type tolerance struct{ absolute, relative float64 }

const exact = 1e-9

// tolerance returns the tolerance of shares: what the slots of weights (3.21), of a zone
// floor (3.62) and of tables (3.46) allow.
func (w *World) tolerance(f *frontend) tolerance {
	if f == nil {
		return tolerance{exact, 0}
	}
	scheduler := w.scheduler(f)
	all := f.cluster
	equal := !slices.ContainsFunc(all, func(e endpoint) bool { return math.Abs(e.weight-all[0].weight) > exact })
	switch {
	case isMaglev(scheduler):
		return tolerance{1.0 / 251, 0.1}
	case equal, len(all) <= 5 && f.extra().ZoneFloor == 0 && len(f.extra().Starting) == 0:
		return tolerance{exact, 0}
	}
	return tolerance{0.011, 0.1}
}

// scheduler returns the scheduler of a frontend (3.19, 1.56, 3.60).
func (w *World) scheduler(f *frontend) model.Scheduler {
	s := f.service.Scheduler
	if s == model.DefaultScheduler {
		s = w.config.Scheduler
	}
	if w.withoutTables[f.service] || f.service.AffinityTimeout > 0 && (f.isRange() || f.service.Balance && hasRange(f.service)) {
		return model.SourceHash
	}
	return s
}

// differs returns what is wrong with results; nothing: they are as expected.
func (e *expectation) differs(c *Class, got []bytecode.Result, may tolerance) string {
	if len(e.targets) > 0 {
		return e.differsInTargets(c, got, may)
	}
	if len(got) != 1 {
		return "there are several outcomes"
	}
	o := got[0].Outcome
	switch {
	case e.waits && o.Verdict == bytecode.Drop, e.mayRefuse && (o.Verdict == bytecode.Reset || o.Verdict == bytecode.Reject):
	case o.Verdict != e.verdict:
		return "another verdict"
	case o.Redirected != e.redirected, o.Redirected && o.Verdict == bytecode.Pass && o.To.Port() != model.RelayPort:
		return "the redirection"
	case o.Verdict == bytecode.Pass && (o.Translated != e.redirected || (o.Masquerade || o.From.IsValid()) && !e.mayMasquerade || o.Mark != 0):
		return "it is changed"
	case o.Verdict == bytecode.Pass && o.Priority != 0 && c.Known == bytecode.New && !e.redirected: // 4.46
		return "it loses its priority"
	}
	return ""
}

// chooses reports whether the scheduler of a frontend chooses so (3.19, 3.40, 3.49).
func (e *expectation) chooses(c *Class, by bytecode.Chooser) bool {
	source, port := string(c.Source.AsSlice()), string([]byte{byte(c.SourcePort >> 8), byte(c.SourcePort), 0, 0}) // a whole register
	switch e.scheduler {
	case model.SourceHash:
		return by.Kind == "jhash" && by.Of == source
	case model.Maglev:
		return by.Kind == "jhash" && by.Of == source
	case model.MaglevPort:
		return by.Kind == "jhash" && by.Of == source+port
	case model.Random:
		return by.Kind == "random"
	}
	return by.Kind == "counter"
}

// reaches returns the target that a packet reaches, or why it reaches none as it must.
func (e *expectation) reaches(c *Class, r *bytecode.Result) (i int, why string) {
	dialled := netip.AddrPortFrom(c.Destination, c.Port)
	i = slices.IndexFunc(e.targets, func(t target) bool { return t.at == r.To && t.hasSource(r) })
	switch {
	case r.Verdict != bytecode.Pass:
		return i, "another verdict"
	case i < 0:
		return i, "another endpoint, or its source"
	case r.Translated == (r.To == dialled), r.Redirected, r.Mark != 0:
		return i, "another translation"
	case r.Priority > 1, r.Priority != 0 && e.forwarded: // 4.46
		return i, "it leaves with another priority"
	}
	return i, ""
}

func (e *expectation) differsInTargets(c *Class, got []bytecode.Result, may tolerance) string {
	found, from := make([]float64, len(e.targets)), make([]map[netip.Addr]float64, len(e.targets))
	for _, r := range got {
		i, why := e.reaches(c, &r)
		switch {
		case why != "":
			return why
		case len(e.targets) > 1 && !e.some && !e.chooses(c, r.By):
			return "another scheduler: " + r.By.Kind
		}
		found[i] += r.Share
		if e.targets[i].masquerade && len(e.targets[i].from) > 1 {
			if from[i] == nil {
				from[i] = make(map[netip.Addr]float64)
			}
			from[i][r.From.Addr()] += r.Share
		}
	}
	if e.some {
		return ""
	}
	for i, t := range e.targets {
		if d := math.Abs(found[i] - t.share); found[i] == 0 || d > may.absolute && d > may.relative*t.share {
			return fmt.Sprintf("the share of %s is %.4f", t.at, found[i])
		}
		for _, a := range t.from { // one after the other (8.7)
			if d := from[i][a] - found[i]/float64(len(t.from)); len(from[i]) > 0 && math.Abs(d) > exact {
				return fmt.Sprintf("the share of %s from %s is %.4f", t.at, a, from[i][a])
			}
		}
	}
	return ""
}

// String says what a packet must experience.
func (e expectation) String() string {
	switch {
	case e.mayRefuse:
		return "reach no endpoint"
	case e.waits:
		return "pass, or drop"
	case e.unchanged:
		return "pass"
	case e.redirected && e.verdict == bytecode.Pass:
		return "reach the relay"
	case len(e.targets) == 0:
		return e.verdict.String()
	}
	var parts []string
	for _, t := range e.targets[:min(len(e.targets), mostExamples)] {
		text := t.at.String()
		if t.masquerade {
			text += " masquerade"
		}
		parts = append(parts, fmt.Sprintf("to %s %.0f %%", text, 100*t.share))
	}
	return strings.Join(parts, ", ")
}

func textOf(got []bytecode.Result) string {
	bytecode.Sort(got)
	var parts []string
	for _, r := range got[:min(len(got), mostExamples)] {
		parts = append(parts, fmt.Sprintf("%s %.0f %%", r.String(), 100*r.Share))
	}
	return strings.Join(parts, ", ")
}

// String returns for example "tcp 10.96.0.10:80 from 198.51.100.201 (outside)".
func (c Class) String() string {
	who := c.Client
	if c.In != "" {
		who += ", on " + c.In
	}
	if state := c.connection(); state != "" {
		who += ", " + state
	}
	return fmt.Sprintf("%s from %s (%s)", c.destination(), c.Source, who)
}

// destination returns for example "tcp 10.96.0.10:80".
func (c Class) destination() string {
	to := c.Destination.String()
	if c.Port != 0 {
		to = netip.AddrPortFrom(c.Destination, c.Port).String()
	}
	protocol := model.Protocol(c.Protocol).String()
	if c.ICMPType != 0 {
		protocol += fmt.Sprintf(" type %d", c.ICMPType)
	}
	return protocol + " " + to
}

// Print prints the number of classes, and the examples.
func (r *Report) Print(out io.Writer) error {
	var b strings.Builder
	for _, e := range r.Examples {
		fmt.Fprintf(&b, "%s\n  must: %s\n  does: %s\n", e.Class, e.Want, e.Got)
	}
	fmt.Fprintf(&b, "%d classes, %d wrong\n", r.Classes, r.Wrong)
	_, err := io.WriteString(out, b.String())
	return err
}

// connection says what distinguishes the connection from a new one within its limits. It is empty for
// such a one.
func (c Class) connection() string {
	switch {
	case c.Known == bytecode.Older:
		return "an older connection"
	case c.Known == bytecode.Related:
		return "a related connection"
	case c.Known == bytecode.Answer:
		return "an answer"
	case c.Exceeds:
		return "beyond its limit"
	}
	return ""
}
