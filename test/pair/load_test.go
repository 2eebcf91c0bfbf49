package pair

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	pause = 20 * time.Millisecond // between two requests, or two lines of a stream
	// hangs is how long a connection may stand still.
	hangs = 6 * time.Second
)

// serve starts the servers of a host. That of HTTPS sends lines without being asked.
func (l *lab) serve(h *netlab.Host) {
	l.t.Helper()
	for _, port := range []uint16{8080, 5353} {
		e, err := h.Echo(port)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { e.Close() })
	}
	for _, f := range model.Families {
		s, err := h.Listen("tcp", netip.AddrPortFrom(h.Address(f), 8443).String())
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { s.Close() })
		go func() {
			for {
				c, err := s.Accept()
				if err != nil {
					return
				}
				go stream(c, h.Name)
			}
		}()
	}
}

func stream(c net.Conn, name string) {
	defer c.Close()
	for {
		if _, err := fmt.Fprintln(c, name); err != nil {
			return
		}
		await.Pace(nil, pause)
	}
}

// flow is one connection of a client, or a UDP socket.
type flow struct {
	kind   string // requests, stream, datagrams
	client *netlab.Host
	family model.Family
	next   func() (string, error) // waits for the next answer, and returns the server
	close  func() error

	mu      sync.Mutex
	server  string
	last    time.Time     // answer
	longest time.Duration // between two answers
	moved   bool          // another server has answered
	broken  error
}

// load is clients with flows of each kind, and new connections of all clients.
type load struct {
	l     *lab
	flows []*flow
	fresh []*flow // one for each family: new connections
	stop  chan struct{}
	all   sync.WaitGroup
}

// startLoad opens flows of each kind for each client and family, which must be served.
func (l *lab) startLoad() *load {
	l.t.Helper()
	o := &load{l: l, stop: make(chan struct{})}
	for _, c := range l.clients {
		for _, f := range model.Families {
			o.flows = append(o.flows, l.requests(c, f), l.stream(c, f), l.datagrams(c, f))
		}
	}
	for _, f := range model.Families {
		o.fresh = append(o.fresh, l.fresh(f))
	}
	for _, f := range append(o.fresh, o.flows...) {
		netlab.Eventually(l.t, patience, func() error {
			err := f.step()
			if err != nil && !f.patient() {
				l.t.Fatalf("open %s of %s: %v", f.kind, f.client.Address(f.family), err)
			}
			return err
		})
		o.all.Go(func() { f.run(o.stop) })
	}
	l.t.Cleanup(o.end)
	return o
}

func (l *lab) requests(c *netlab.Host, f model.Family) *flow {
	open, err := c.Open("tcp", netip.AddrPortFrom(virtual[f], 80), hangs)
	if err != nil {
		l.t.Fatal(err)
	}
	return &flow{kind: "requests", client: c, family: f, next: name(open), close: open.Close}
}

func (l *lab) datagrams(c *netlab.Host, f model.Family) *flow {
	open, err := c.Open("udp", netip.AddrPortFrom(virtual[f], 53), 100*time.Millisecond)
	if err != nil {
		l.t.Fatal(err)
	}
	return &flow{kind: "datagrams", client: c, family: f, next: name(open), close: open.Close}
}

func name(f *netlab.Flow) func() (string, error) {
	return func() (string, error) {
		await.Pace(nil, pause)
		a, err := f.Ask()
		return a.Name, err
	}
}

// stream opens a connection over which only the server sends.
func (l *lab) stream(c *netlab.Host, f model.Family) *flow {
	// netlab's flows send: the socket is made by hand.
	var conn net.Conn
	err := c.Do(func() (err error) {
		d := net.Dialer{Timeout: hangs, LocalAddr: &net.TCPAddr{IP: c.Address(f).AsSlice()}}
		conn, err = d.DialContext(context.Background(), "tcp", netip.AddrPortFrom(virtual[f], 443).String())
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	return &flow{kind: "stream", client: c, family: f, close: conn.Close, next: func() (string, error) {
		if err := conn.SetReadDeadline(time.Now().Add(hangs)); err != nil {
			return "", err
		}
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = errors.New("closed by the server")
		}
		return line[:max(0, len(line)-1)], err
	}}
}

// fresh opens connections of the clients in turn.
func (l *lab) fresh(f model.Family) *flow {
	i := 0
	return &flow{kind: "new connections", client: l.clients[0], family: f, close: func() error { return nil }, next: func() (string, error) {
		await.Pace(nil, pause)
		i++
		_, err := l.clients[i%clients].Ask("tcp", netip.AddrPortFrom(virtual[f], 80), 100*time.Millisecond)
		return "any", err
	}}
}

// patient reports whether an error ends the flow. Datagrams and new connections are
// tried again.
func (f *flow) patient() bool { return f.kind == "datagrams" || f.kind == "new connections" }

func (f *flow) step() error {
	server, err := f.next()
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		if !f.patient() {
			f.broken = err
		}
		return err
	}
	if f.server != "" {
		f.longest = max(f.longest, now.Sub(f.last))
		f.moved = f.moved || server != f.server
	}
	f.server, f.last = server, now
	return nil
}

func (f *flow) run(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := f.step(); err != nil && !f.patient() {
			return
		}
	}
}

// state returns the time of the last answer and the error that ended the flow.
func (f *flow) state() (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.broken
}

// settle waits until every flow has had answers for a while, or is broken.
func (o *load) settle() {
	o.l.t.Helper()
	after := time.Now().Add(time.Second / 2)
	deadline := time.Now().Add(hangs + 2*time.Second)
	for _, f := range append(o.fresh, o.flows...) {
		for {
			last, broken := f.state()
			if broken != nil || last.After(after) {
				break
			}
			if time.Now().After(deadline) {
				f.mu.Lock()
				f.broken = fmt.Errorf("no answer for %v", hangs)
				f.mu.Unlock()
				break
			}
			await.Pace(nil, pause)
		}
	}
}

// end ends all flows. It can be called again.
func (o *load) end() {
	select {
	case <-o.stop:
		return
	default:
		close(o.stop)
	}
	for _, f := range o.flows {
		f.close()
	}
	o.all.Wait()
}

// record sums up the flows of a kind.
type record struct {
	flows, broken, moved int
	longest              time.Duration // between two answers, of those that are not broken
	why                  error         // of the last broken one
}

// take returns the records by kind, and starts counting again. Broken flows stay broken.
func (o *load) take() map[string]*record {
	out := make(map[string]*record)
	for _, f := range append(o.fresh, o.flows...) {
		f.mu.Lock()
		r := out[f.kind]
		if r == nil {
			r = &record{}
			out[f.kind] = r
		}
		r.flows++
		switch {
		case f.broken != nil:
			r.broken++
			r.why = f.broken
		default:
			if f.moved {
				r.moved++
			}
			r.longest = max(r.longest, f.longest)
		}
		f.longest, f.moved = 0, false
		f.mu.Unlock()
	}
	return out
}

func (r *record) String() string {
	s := fmt.Sprintf("%d of %d broken, %d moved, longest pause %v", r.broken, r.flows, r.moved, r.longest.Round(10*time.Millisecond))
	if r.why != nil {
		s += fmt.Sprintf(" (%v)", r.why)
	}
	return s
}
