package traffic

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Source is the part of [nflog.Reader] that a collector needs.
type Source interface {
	Read(func(*nflog.Event)) error
	Lost() uint64
	Close() error
}

// Node is the machine whose rules log, and what it serves.
type Node interface {
	// Open begins to read what rules log.
	Open() (Source, error)
	// PortOf returns the service port of a frontend; false: none has it. Holder returns the
	// Service that has an address; its cost may grow with the number of Services.
	PortOf(model.Frontend) (model.PortName, bool)
	Holder(netip.Addr) (model.ServiceName, bool)
	IsBalance(model.ServiceName) bool
	// Logs reports whether events get a line in the log.
	Logs(model.Outcome) bool
}

// Kernel is the part of connection tracking that outcomes follow from.
type Kernel interface {
	// EntriesOf returns the entries of connections; nil: there is none.
	EntriesOf([]conntrack.Connection) ([]*conntrack.Entry, error)
	// CountsBytes reports whether entries have bytes.
	CountsBytes() bool
}

// Config has what a [Collector] needs.
type Config struct {
	Node Node
	Log  *slog.Logger
	// Samples, if set, gets the samples of connections that are served.
	Samples *Samples
	// Connections, if set, follows connections that are served.
	Connections *Connections
}

// State is the state of a collector.
type State struct {
	// Err is why nothing is read, since Since; nil: events are read, or that has not begun.
	Err    error
	Since  time.Time
	Events map[string]uint64 // since the start of the process, by reason
	Lost   uint64            // messages that the kernel has dropped, samples included
	// Skipped are connections that were not followed, because too many were open.
	Skipped uint64
	// Sampled are the samples whose outcome is known, and SampledFailed the ones without an answer.
	Sampled, SampledFailed uint64
}

// Total returns the number of all events.
func (s *State) Total() uint64 {
	refused, failed, served := s.Outcomes()
	return refused + failed + served
}

// Outcomes returns the events of connections that rules have refused, of those that endpoints
// have refused or not answered, and of the others.
func (s *State) Outcomes() (refused, failed, served uint64) {
	for reason, n := range s.Events {
		switch c := model.CourseOf(reason); {
		case c == nil:
			refused += n
		case c.Outcome.Failed():
			failed += n
		default:
			served += n
		}
	}
	return refused, failed, served
}

// Collector reads what rules log into a [Log].
type Collector struct {
	*Log
	config  Config
	holders holders

	state sync.Mutex
	now   State
	from  Source // nil: none
}

// NewCollector returns a collector that reads nothing yet.
func NewCollector(c Config) *Collector {
	return &Collector{Log: NewLog(), config: c, holders: holders{node: c.Node}, now: State{Events: make(map[string]uint64)}}
}

// State returns the present state. It is safe for concurrent use.
func (c *Collector) State() State {
	c.state.Lock()
	defer c.state.Unlock()
	s := c.now
	s.Events = maps.Clone(s.Events)
	if c.from != nil {
		s.Lost += c.from.Lost()
	}
	if c.config.Connections != nil {
		s.Skipped = c.config.Connections.Skipped()
	}
	if c.config.Samples != nil {
		s.Sampled, s.SampledFailed = c.config.Samples.judged()
	}
	return s
}

const (
	firstPause = time.Second // before another attempt to read; doubles
	maxPause   = time.Minute
)

// Run reads until ctx ends. After an error it tries again.
func (c *Collector) Run(ctx context.Context) {
	if c.config.Connections != nil {
		var following sync.WaitGroup
		following.Go(func() { c.config.Connections.Run(ctx, c.emit) })
		defer following.Wait()
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		begun, err := c.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if begun {
			pause = firstPause
		}
		c.failed(err, pause)
		if !parallel.Wait(ctx, pause) {
			return
		}
	}
}

// failed records an error, and logs it unless it is the one before.
func (c *Collector) failed(err error, pause time.Duration) {
	c.state.Lock()
	defer c.state.Unlock()
	if c.now.Err == nil || c.now.Err.Error() != err.Error() {
		c.config.Log.Error("refused connections are not observed", "error", err, "retry", pause)
		c.now.Since = time.Now()
	}
	c.now.Err = err
}

// read reads until there is an error, or ctx ends. begun reports that it could open the source.
func (c *Collector) read(ctx context.Context) (begun bool, err error) {
	from, err := c.config.Node.Open()
	if err != nil {
		return false, err
	}
	c.begin(from)
	defer c.end(from)
	stop := context.AfterFunc(ctx, func() { _ = from.Close() }) // ends Read
	defer stop()
	for {
		if err := from.Read(c.take); err != nil {
			return true, err
		}
		if c.config.Samples != nil {
			c.config.Samples.missed(from.Lost())
		}
	}
}

func (c *Collector) begin(from Source) {
	c.state.Lock()
	defer c.state.Unlock()
	if c.now.Err != nil {
		c.config.Log.Info("refused connections are observed again")
	}
	c.from, c.now.Err, c.now.Since = from, nil, time.Now()
}

func (c *Collector) end(from Source) {
	_ = from.Close() // it is of no more use
	c.state.Lock()
	defer c.state.Unlock()
	c.from, c.now.Lost = nil, c.now.Lost+from.Lost()
}

// take adds an event.
func (c *Collector) take(n *nflog.Event) {
	if c.served(n) {
		return
	}
	e := Event{Time: time.Now(), Protocol: n.Protocol, Client: n.Client(), Dialled: n.Dialled()}
	if r := model.RefusalOf(string(n.Prefix)); r != nil {
		e.Reason = r.Name
	} else {
		e.Reason = string(n.Prefix[:min(len(n.Prefix), foreignReason)])
	}
	if to, ok := n.Endpoint(); ok {
		e.Endpoint = to
	}
	e.Service = c.serviceOf(&e)
	c.emit(&e)
}

// emit adds an event, counts and logs it.
func (c *Collector) emit(e *Event) {
	c.Add(e)
	c.count(e.Reason)
	if node := c.config.Node; node.Logs(e.Outcome) {
		logEvent(c.config.Log, e, words.Of(node.IsBalance(e.Service.Service)))
	}
}

// served takes a message about a connection that is served, and reports whether it is one.
func (c *Collector) served(n *nflog.Event) bool {
	samples, connections := c.config.Samples, c.config.Connections
	switch prefix := string(n.Prefix); {
	case prefix == model.ChosenPrefix && samples != nil:
		if port, ok := c.portOf(n.Protocol, n.Dialled()); ok { // else of another program
			samples.add(n, port)
		}
	case prefix == model.SamplePrefix && samples != nil:
		samples.pass(n)
	case connections == nil:
		return false
	case prefix == model.DialledPrefix:
		connections.dial(n)
	case prefix == model.ConnectionPrefix:
		if samples != nil {
			samples.pass(n)
		}
		if to, ok := connections.dialledBy(n); ok {
			if port, ok := c.portOf(n.Protocol, to); ok { // else of another program
				connections.begin(n, to, port)
			}
		}
	case prefix == model.EndPrefix:
		connections.end(n)
	default:
		return false
	}
	return true
}

func (c *Collector) count(reason string) {
	c.state.Lock()
	defer c.state.Unlock()
	c.now.Events[counted(reason)]++
}

// portOf returns the service port that a client has dialled.
func (c *Collector) portOf(p model.Protocol, dialled netip.AddrPort) (model.PortName, bool) {
	return c.config.Node.PortOf(model.Frontend{Address: dialled.Addr(), Protocol: p, Port: dialled.Port()})
}

// serviceOf names the service port of an event, or the Service that has its address.
func (c *Collector) serviceOf(e *Event) model.PortName {
	if name, ok := c.portOf(e.Protocol, e.Dialled); ok {
		return name
	}
	if r, _ := model.ReasonOf(e.Reason); model.Refusals[r].CountedBy != model.ByAddress {
		return model.PortName{} // the packet is to no address of a Service
	}
	name, _ := c.holders.of(e.Dialled.Addr(), e.Time)
	return model.PortName{Service: name}
}

var logMessages = [...]string{
	model.RefusedByRules: "connection refused", model.RefusedByEndpoint: "connection refused by the endpoint",
	model.NoAnswer: "connection not answered", model.Served: "connection served",
}

// logEvent logs an event as a line.
func logEvent(log *slog.Logger, e *Event, in words.Vocabulary) {
	attributes := []any{"reason", e.Reason, "protocol", e.Protocol.String(), "client", model.EndpointText(e.Client), "to", model.EndpointText(e.Dialled)}
	if e.Service.Service.Name != "" {
		attributes = append(attributes, "service", e.Service.String())
	}
	if e.Endpoint.IsValid() {
		attributes = append(attributes, "endpoint", e.Endpoint.String())
	}
	if e.Outcome != model.RefusedByRules {
		attributes = append(attributes, "duration", e.Duration.Round(time.Millisecond))
	}
	if e.Counted {
		attributes = append(attributes, "sent", e.Sent, "received", e.Received)
	}
	log.Info(in.Text(logMessages[e.Outcome]), attributes...)
}
