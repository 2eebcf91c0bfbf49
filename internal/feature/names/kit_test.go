package names

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// faulty is a DNS server with prepared answers, over UDP and TCP. It stands in for servers
// with faults: test/names has a real one.
type faulty struct {
	address netip.AddrPort

	mu      sync.Mutex
	replies map[string]reply // by name without the final dot, and type
	asked   map[string]int
}

type reply struct {
	code      dnsmessage.RCode
	ttl       uint32
	addresses []string
	resources []dnsmessage.Resource // in place of addresses
	silent    bool                  // there is no answer
	spoil     func([]byte) [][]byte // messages in place of the one
}

func newFaulty(t testing.TB) *faulty {
	f := &faulty{replies: make(map[string]reply), asked: make(map[string]int)}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = tcp.Addr().(*net.TCPAddr).AddrPort()
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(f.address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close(); tcp.Close() })
	go f.serveUDP(udp)
	go f.serveTCP(tcp)
	return f
}

func (f *faulty) set(name, kind string, r reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies[name+" "+kind] = r
}

func (f *faulty) count(name, kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[name+" "+kind]
}

var kinds = map[dnsmessage.Type]string{dnsmessage.TypeA: "A", dnsmessage.TypeAAAA: "AAAA", dnsmessage.TypeSRV: "SRV"}

// answer returns the messages for a query. A name that is not known does not exist.
func (f *faulty) answer(query []byte, room int) [][]byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	id := strings.TrimSuffix(q.Name.String(), ".") + " " + kinds[q.Type]
	f.mu.Lock()
	f.asked[id]++
	r, known := f.replies[id]
	f.mu.Unlock()
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true, RCode: r.code}, Questions: m.Questions}
	switch {
	case r.silent:
		return nil
	case !known:
		out.RCode = dnsmessage.RCodeNameError
	}
	out.Answers = r.resources
	for _, text := range r.addresses {
		out.Answers = append(out.Answers, resource(q.Name.String(), r.ttl, text))
	}
	packed, err := out.Pack()
	if err != nil {
		panic(err)
	}
	if len(packed) > room {
		out.Truncated, out.Answers = true, nil
		packed, _ = out.Pack()
	}
	if r.spoil != nil {
		return r.spoil(packed)
	}
	return [][]byte{packed}
}

// resource returns a record with an address or, for another text, an alias.
func resource(name string, ttl uint32, text string) dnsmessage.Resource {
	out := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: ttl}}
	switch a, err := netip.ParseAddr(text); {
	case err != nil:
		out.Header.Type, out.Body = dnsmessage.TypeCNAME, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(text)}
	case a.Is4():
		out.Header.Type, out.Body = dnsmessage.TypeA, &dnsmessage.AResource{A: a.As4()}
	default:
		out.Header.Type, out.Body = dnsmessage.TypeAAAA, &dnsmessage.AAAAResource{AAAA: a.As16()}
	}
	return out
}

// srv returns an SRV record.
func srv(name string, ttl uint32, priority, weight, port uint16, target string) dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: ttl, Type: dnsmessage.TypeSRV},
		Body:   &dnsmessage.SRVResource{Priority: priority, Weight: weight, Port: port, Target: dnsmessage.MustNewName(target)},
	}
}

func (f *faulty) serveUDP(c *net.UDPConn) {
	buffer := make([]byte, 4096)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		for _, m := range f.answer(buffer[:n], udpSize) {
			_, _ = c.WriteToUDPAddrPort(m, from)
		}
	}
}

func (f *faulty) serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var length [2]byte
			if _, err := io.ReadFull(c, length[:]); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(c, query); err != nil {
				return
			}
			for _, m := range f.answer(query, 1<<16-1) {
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
			}
		}()
	}
}

// followed is an engine that runs, with a Service for each name, and what it has reported.
type followed struct {
	*Engine
	t       testing.TB
	changes chan []model.ServiceName
}

func follow(t testing.TB, c Config) *followed {
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	c.MinTTL, c.MaxTTL = max(c.MinTTL, 10*time.Millisecond), max(c.MaxTTL, time.Hour)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Node == nil {
		c.Node = new(feature.Node)
	}
	f := &followed{NewEngine(c), t, make(chan []model.ServiceName, 1000)}
	ended := make(chan struct{})
	ctx := t.Context()
	go func() {
		defer close(ended)
		f.Run(ctx, func(names ...model.ServiceName) { f.changes <- names })
	}()
	t.Cleanup(func() { <-ended })
	return f
}

// web is a Service with these servers, on an address of each family.
func web(servers ...string) model.ServiceState {
	s := &model.Service{
		Name: model.ServiceName{Namespace: "default", Name: "web"}, NoClusterIP: true, Balance: true,
		External: &model.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8::10")}},
		Ports:    []model.ServicePort{{Protocol: model.TCP, Port: 80}}, Extras: new(model.Extras),
	}
	for _, name := range servers {
		n := model.NamedServer{Text: name, Name: name, Records: strings.HasPrefix(name, "_"), Weight: 1, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}}}
		s.Extras.Names = append(s.Extras.Names, n)
	}
	return model.ServiceState{Service: s}
}

// endpoints returns the endpoints of a Service as the engine edits it.
func (f *followed) endpoints(s model.ServiceState) (out []string) {
	edited := f.Edit(s.Service.Name, s)
	for _, slice := range edited.Slices {
		for _, h := range slice.Hosts {
			out = append(out, netip.AddrPortFrom(h.Address, slice.Ports[0].Port).String())
		}
	}
	return out
}

// Status is the state of a name.
type Status struct {
	Addresses int
	Err       error
	Since     time.Time
}

// Status returns the states of all names, sorted.
func (e *Engine) Status() (out []Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.entries() {
		out = append(out, Status{len(n.records), n.err, n.since})
	}
	return out
}

// await waits until the Service has these endpoints.
func (f *followed) await(s model.ServiceState, want ...string) {
	f.t.Helper()
	for {
		got := f.endpoints(s)
		if strings.Join(got, " ") == strings.Join(want, " ") {
			return
		}
		await.Receive(f.t, f.changes, fmt.Sprintf("change of endpoints %v to %v; %+v", got, want, f.Status()))
	}
}

// awaitStatus waits until the only name is in a state.
func (f *followed) awaitStatus(what string, is func(Status) bool) {
	f.t.Helper()
	await.Until(f.t, func() error {
		if s := f.Status(); len(s) != 1 || !is(s[0]) {
			return fmt.Errorf("no %s: %+v", what, s)
		}
		return nil
	})
}
