package simulation

import "math/rand/v2"

// Event is something that happens to a machine. What it does depends on its number, and on what has
// happened before.
type Event struct {
	Kind   Kind
	Number uint64
}

// Kind is a kind of event.
type Kind uint8

// Kinds of events.
const (
	Replace    Kind = iota // a Service gets other settings and endpoints
	Remove                 // a Service
	Several                // Services are replaced together, or removed
	Roll                   // endpoints of a Service are replaced
	Move                   // addresses of the machine come and go
	Hide                   // a part of the source cannot be read
	Unhide                 // it can be read again
	Unreadable             // the whole source cannot be read
	Readable               // it can be read again
	Late                   // endpoints arrive later than their Services
	Again                  // all objects arrive once more, as with a list
	Old                    // objects arrive as they were before, and then as they are
	Rival                  // the process ends, and another one owns the tables when the next one starts
	Disturb                // another program changes the rules
	Miss                   // likewise, and the message about it is lost
	Fail                   // the next transaction has a fault
	Refuse                 // the kernel refuses the elements of a Service
	Open                   // UDP clients open connections
	Bind                   // a client is bound to an endpoint
	Interrupt              // an endpoint of a client leaves, and the listing of connection tracking is interrupted
	Full                   // the runtime directory takes no file, until faults end
	Toggle                 // an interface goes down or comes up
	Relink                 // an interface is deleted and made again
	TakeOff                // an address is taken off an interface
	Pass                   // time passes
	Rollout                // the process restarts, or not, and endpoints of one Service are replaced, one after the other
	Stop                   // the process ends in order, and another one starts
	Kill                   // the process is killed, and another one starts
	CrashSoon              // the process ends in the middle of its next transaction
	CrashAt                // the process ends in the middle of its next change of an address
	Part                   // a process starts and cannot read a part of the source
	Settle                 // all faults end, and everything is compared
	Prove                  // likewise, and packets are followed
	numKinds
)

func (k Kind) String() string {
	return [numKinds]string{"replace", "remove", "several", "roll", "move", "hide", "unhide", "unreadable", "readable", "late", "again", "old", "rival", "disturb", "miss", "fail", "refuse",
		"open", "bind", "interrupt", "full", "toggle", "relink", "take off", "pass", "rollout", "stop", "kill", "crash soon", "crash at", "part", "settle", "prove"}[k]
}

// weights are how often kinds of events are drawn.
var weights = [numKinds]int{
	Replace: 40, Remove: 10, Several: 6, Roll: 20, Move: 4, Hide: 2, Unhide: 6, Unreadable: 2, Readable: 4, Late: 6, Again: 3, Old: 3, Full: 2, Rival: 1, Disturb: 6, Miss: 4, Fail: 10, Refuse: 1,
	Open: 14, Bind: 8, Interrupt: 6, Toggle: 4, Relink: 2, TakeOff: 2, Pass: 12, Rollout: 4, Stop: 3, Kill: 1, CrashSoon: 3, CrashAt: 2, Part: 2, Settle: 6,
}

// proofs is how many seeds there are for each one with a proof at its end: it takes as long as the rest.
const proofs = 32

// Draw returns the events of a seed: three crashes at least, and at the end a comparison.
func Draw(seed uint64, n int) []Event {
	r := rand.New(rand.NewPCG(seed, 3))
	sum := 0
	for _, w := range weights {
		sum += w
	}
	out := make([]Event, 0, n)
	for len(out) < n {
		x := r.IntN(sum)
		k := Kind(0)
		for ; x >= weights[k]; k++ {
			x -= weights[k]
		}
		out = append(out, Event{k, r.Uint64()})
	}
	for i := range 3 {
		out[n/4*(i+1)] = Event{Kill, r.Uint64()} // the other kinds of crashes may have nothing to interrupt
	}
	end := Settle
	if seed%proofs == 0 {
		end = Prove
	}
	return append(out, Event{end, r.Uint64()})
}
