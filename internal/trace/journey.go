package trace

import "strings"

// loopback is the number of the interface lo in every network namespace.
const loopback = 1

// Pass is one base chain that a packet has met, with the rules that matched in it and in the
// chains that it led to.
type Pass struct {
	Place
	Packet *Packet // at the beginning of the chain
	Hook   string
	Events []Event
	own    bool // the chain is of our table
}

// Journey is the way of one packet through the machine.
type Journey struct {
	Passes []Pass
	// New reports that connection tracking took the packet for the first of a connection,
	// Untracked that it does not follow the connection.
	New, Untracked bool

	hook    string // where the packet is
	stage   string // kind of the last chain of ours that it passed
	ended   *Event // that took the packet out: dropped or stolen
	left    bool   // it was sent on an interface that leads out of the machine
	arrived bool   // it was delivered to the machine
}

func (j *Journey) done() bool { return j.ended != nil || j.left || j.arrived }

// firstPacket and last are the packet as it began and as it was seen last.
func (j *Journey) firstPacket() *Packet { return j.Passes[0].Packet }

func (j *Journey) lastPacket() *Packet { return j.Passes[len(j.Passes)-1].Packet }

// add records an event about the packet.
func (j *Journey) add(e Event, own bool) {
	if e.Packet != nil {
		if own {
			j.hook = e.hook()
		}
		j.Passes = append(j.Passes, Pass{Place: e.Place, Packet: e.Packet, Hook: j.hook, own: own})
	}
	if len(j.Passes) == 0 {
		return // its beginning is not known
	}
	pass := &j.Passes[len(j.Passes)-1]
	pass.Events = append(pass.Events, e)
	if own {
		j.stage = e.stage()
		j.recordPass(e)
		return
	}
	if e.Verdict == Drop || e.Verdict == Stolen {
		j.ended = &e
	}
}

func (j *Journey) recordPass(e Event) {
	switch {
	case j.stage == kindNew && e.Kind == Rule:
		j.New = true
	case j.stage == kindUntracked && e.Kind == Rule:
		j.Untracked = true
	case j.stage == kindLast && j.hook == "input":
		j.arrived = true
	case j.stage == kindLast && j.hook == "postrouting":
		j.left = j.lastPacket().Out != loopback
	}
}

// hook and stage are the parts of the name of a chain of ours.
func (e *Event) hook() string {
	name, _, _ := strings.Cut(e.Chain, "-")
	return name
}

func (e *Event) stage() string {
	_, kind, _ := strings.Cut(e.Chain, "-")
	return kind
}

// collector sorts events by the packets that they are about, and keeps those of one
// connection.
type collector struct {
	table Place // ours
	match Match
	open  map[uint32]*Journey // on their way, by ID
	// the connection that is followed
	first, reply *Journey
	attempts     int
}

// mostOpen is how many packets are followed at once. One that is not finished after so many
// others has disappeared.
const mostOpen = 1000

func newCollector(table Place, m Match) *collector {
	return &collector{table: table, match: m, open: make(map[uint32]*Journey)}
}

// add takes the next event.
func (c *collector) add(e Event) {
	own := e.Family == c.table.Family && e.Table == c.table.Table
	j := c.journeyOf(&e, own)
	if j == nil {
		return
	}
	j.add(e, own)
	if j.done() {
		delete(c.open, e.ID)
	}
	c.chooseJourney(j, &e)
}

// journeyOf returns the journey that an event belongs to, or nil.
func (c *collector) journeyOf(e *Event, own bool) *Journey {
	j := c.open[e.ID]
	if own && e.Kind == Rule && e.stage() != kindLast { // it marks a packet, and may be the first one about it
		if e.Packet == nil { // a rule of ours behind the first one of its chain: there is none
			return j
		}
		// The chains behind connection tracking mark a packet once more, in the hook where it is.
		if j != nil && e.stage() != kindFirst && j.hook == e.hook() && len(j.Passes) > 0 && j.lastPacket().sameContent(e.Packet) {
			return j
		}
		if j = c.findContinued(e.Packet); j == nil {
			j = &Journey{}
		}
		c.rememberJourney(e.ID, j)
		return j
	}
	if j == nil && own && e.Packet != nil {
		if j = c.findContinued(e.Packet); j != nil {
			c.rememberJourney(e.ID, j)
		}
	}
	return j
}

func (c *collector) rememberJourney(id uint32, j *Journey) {
	if len(c.open) >= mostOpen {
		clear(c.open)
	}
	c.open[id] = j
}

// findContinued returns the journey of the connection that goes on with a packet of another ID:
// the kernel has received it on lo, or copied it.
func (c *collector) findContinued(p *Packet) *Journey {
	for _, j := range []*Journey{c.first, c.reply} {
		if j == nil || j.done() || len(j.Passes) == 0 {
			continue
		}
		last := j.lastPacket()
		onLo := j.hook == "postrouting" && p.In == loopback && p.Destination == last.Destination
		copied := j.hook != "postrouting" && p.Source == last.Source && p.Destination == last.Destination && p.In == last.In && p.In != 0
		if (onLo || copied && j.stage == kindLast) && last.sameContent(p) {
			return j
		}
	}
	return nil
}

// chooseJourney follows the first connection that begins, and its first answer.
func (c *collector) chooseJourney(j *Journey, e *Event) {
	if len(j.Passes) == 0 {
		return
	}
	switch p := j.firstPacket(); {
	case c.first == nil && c.beginsConnection(j):
		c.first, c.attempts = j, 1
	case c.first == nil || j == c.first || j == c.reply:
	case c.beginsConnection(j) && e.Table == c.table.Table && j.stage == kindNew && e.Kind == Rule && p.Source == c.first.firstPacket().Source && p.Destination == c.first.firstPacket().Destination:
		c.attempts++
	case c.reply == nil && c.isAnswer(j):
		c.reply = j
	}
}

// beginsConnection reports whether the packet is the first one of a connection, or was dropped before
// connection tracking saw it.
func (c *collector) beginsConnection(j *Journey) bool {
	p := j.firstPacket()
	return p.Destination == c.match.Frontend && p.Protocol == c.match.Protocol && (j.New || j.Untracked || j.ended != nil && j.stage == kindFirst)
}

// isAnswer reports whether the packet answers the first one, or is an error about it.
func (c *collector) isAnswer(j *Journey) bool {
	if c.first.ended != nil || !strings.HasSuffix(j.Passes[0].Chain, kindReply) || !j.Passes[0].own {
		return false
	}
	p, asked := j.firstPacket(), c.first.lastPacket()
	if p.Protocol.IsEcho() {
		return p.Destination.Addr() == asked.Source.Addr()
	}
	return p.Destination == asked.Source && p.Source == asked.Destination
}
