package names

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// key identifies what is looked up.
type key struct {
	name    string
	records bool // SRV
}

type record struct {
	model.NamedAddress
	Target string `json:"target,omitempty"` // of the SRV record with the name of the address
}

// result has the answers of a lookup. With an error, the records of the parts that failed are
// the ones before.
type result struct {
	records []record
	ttl     uint32 // in seconds, of the parts that have not failed
	err     error
	dropped int // addresses beyond the limit
	refused int // addresses that no server can have
}

const noTTL = ^uint32(0)

// errAbsent is why nothing is known about a name that has no record.
var errAbsent = errors.New("there is no such name, or it has no address")

// maxRank is the highest priority of an endpoint.
const maxRank = 9

func (c *client) lookup(ctx context.Context, k key, families []model.Family, before []record) result {
	if k.records {
		return c.lookupRecords(ctx, k.name, families, before).limited()
	}
	conf := c.servers.current(time.Now())
	var r result
	for _, full := range conf.full(k.name) {
		if r = c.addresses(ctx, full, families, before); r.err == nil || !errors.Is(r.err, errAbsent) {
			break
		}
	}
	return r.limited()
}

// addresses asks for the addresses of a name. A family without one is an answer as long as
// another one has some.
func (c *client) addresses(ctx context.Context, name string, families []model.Family, before []record) result {
	out := result{ttl: noTTL}
	for _, f := range families {
		a, err := c.ask(ctx, name, map[model.Family]dnsmessage.Type{model.IPv4: dnsmessage.TypeA, model.IPv6: dnsmessage.TypeAAAA}[f])
		if err != nil {
			out.err = cmp.Or(out.err, err)
			out.records = append(out.records, slices.DeleteFunc(slices.Clone(before), func(r record) bool { return model.FamilyOf(r.Address) != f })...)
			continue
		}
		out.ttl, out.refused = min(out.ttl, a.ttl), out.refused+a.refused
		for _, ip := range a.addresses {
			out.records = append(out.records, record{NamedAddress: model.NamedAddress{Address: ip}})
		}
	}
	switch {
	case out.err != nil, len(out.records) > 0:
	case out.refused > 0:
		out.err, out.records = errors.New("it has no address that a server can have: loopback, multicast and link-local ones do not count"), before
	default:
		out.err, out.records = errAbsent, before
	}
	return out
}

// lookupRecords asks for SRV records, and for the addresses of their targets.
func (c *client) lookupRecords(ctx context.Context, name string, families []model.Family, before []record) result {
	conf := c.servers.current(time.Now())
	a, err := c.ask(ctx, conf.full(name)[0], dnsmessage.TypeSRV)
	switch {
	case err != nil:
		return result{records: before, ttl: noTTL, err: err}
	case len(a.targets) == 0:
		return result{records: before, ttl: noTTL, err: errAbsent}
	}
	targets := a.targets
	slices.SortFunc(targets, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.name, b.name), cmp.Compare(a.port, b.port), cmp.Compare(b.weight, a.weight))
	})
	out := result{ttl: a.ttl, dropped: max(0, len(targets)-budget.NameAddresses)}
	targets = targets[:len(targets)-out.dropped]
	found := c.targets(ctx, targets, families, before)
	rank, last := -1, -1
	for i, t := range targets {
		if int(t.priority) != last {
			rank, last = min(rank+1, maxRank), int(t.priority)
		}
		out.take(found[i], t, uint8(rank))
	}
	if len(out.records) == 0 && out.err == nil {
		out.err, out.records = fmt.Errorf("no server of its SRV records has an address"), before
	}
	return out
}

// targets asks for the addresses of all targets. Not more questions than the budget allows are
// under way.
func (c *client) targets(ctx context.Context, targets []target, families []model.Family, before []record) []result {
	out := make([]result, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			known := slices.DeleteFunc(slices.Clone(before), func(r record) bool { return r.Target != t.name || r.Port != t.port })
			out[i] = c.addresses(ctx, t.name, families, known)
		})
	}
	all.Wait()
	return out
}

// take adds what was found of a target. That a target has no address is no failure: it is gone.
func (r *result) take(found result, t target, rank uint8) {
	r.ttl, r.refused = min(r.ttl, found.ttl), r.refused+found.refused
	if errors.Is(found.err, errAbsent) {
		return
	}
	if found.err != nil {
		r.err = cmp.Or(r.err, fmt.Errorf("%s: %w", t.name, found.err))
	}
	for _, a := range found.records {
		a.Target, a.Port, a.Weight, a.Priority = t.name, t.port, max(1, t.weight), rank
		r.records = append(r.records, a)
	}
}

// limited returns the result with sorted records, each once and not too many.
func (r result) limited() result {
	r.records = slices.Clone(r.records)
	slices.SortFunc(r.records, func(a, b record) int { return a.Compare(b.NamedAddress) })
	r.records = slices.CompactFunc(r.records, func(a, b record) bool { return a.Address == b.Address && a.Port == b.Port })
	if more := len(r.records) - budget.NameAddresses; more > 0 {
		r.records, r.dropped = r.records[:budget.NameAddresses], r.dropped+more
	}
	return r
}

type client struct {
	servers servers
	timeout time.Duration // of a question to one server
	room    chan struct{} // has a value for each question that is under way
}

// ask asks the servers, one after the other, until one knows.
func (c *client) ask(ctx context.Context, name string, t dnsmessage.Type) (*answer, error) {
	q, err := question(name, t)
	if err != nil {
		return nil, err
	}
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var failed error
	for _, s := range c.servers.current(time.Now()).servers {
		a, err := c.askOne(ctx, s, q)
		if err == nil {
			c.servers.answered(s)
			return a, nil
		}
		failed = errors.Join(failed, fmt.Errorf("ask %s: %w", s, plain(err)))
	}
	return nil, failed
}

// plain returns an error without the addresses of its connection, of which one is new each time.
func plain(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &op) && op.Timeout():
		return errors.New("no answer")
	case op != nil:
		return op.Err
	}
	return err
}

func (c *client) askOne(ctx context.Context, s netip.AddrPort, q dnsmessage.Question) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	a, err := c.exchange(ctx, s, q, true)
	if err == codeError(dnsmessage.RCodeFormatError) || err == codeError(dnsmessage.RCodeNotImplemented) {
		return c.exchange(ctx, s, q, false) // an old server (RFC 6891, 7)
	}
	return a, err
}

// exchange sends a query over UDP, and over TCP if the answer is too large.
func (c *client) exchange(ctx context.Context, s netip.AddrPort, q dnsmessage.Question, extended bool) (*answer, error) {
	// The identifier cannot be guessed: with the port, which the kernel chooses at random, it keeps others from answering.
	var random [2]byte
	_, _ = rand.Read(random[:]) // it never fails
	id := binary.BigEndian.Uint16(random[:])
	query, err := pack(id, q, extended)
	if err != nil {
		return nil, err
	}
	h, p, err := overUDP(ctx, s, id, q, query)
	if err == nil && h.Truncated {
		h, p, err = overTCP(ctx, s, id, q, query)
	}
	if err != nil {
		return nil, err
	}
	return parse(&p, h, q)
}

func overUDP(ctx context.Context, s netip.AddrPort, id uint16, q dnsmessage.Question, query []byte) (h dnsmessage.Header, p dnsmessage.Parser, err error) {
	conn, err := dial(ctx, "udp", s)
	if err != nil {
		return h, p, err
	}
	defer conn.Close()
	if _, err = conn.Write(query); err != nil {
		return h, p, err
	}
	buffer := make([]byte, udpSize)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return h, p, err
		}
		if h, p, err = begin(buffer[:n], id, q); err == nil {
			return h, p, nil
		}
	}
}

// overTCP sends a query over TCP, where each message follows its length.
func overTCP(ctx context.Context, s netip.AddrPort, id uint16, q dnsmessage.Question, query []byte) (h dnsmessage.Header, p dnsmessage.Parser, err error) {
	conn, err := dial(ctx, "tcp", s)
	if err != nil {
		return h, p, err
	}
	defer conn.Close()
	if _, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return h, p, err
	}
	var length [2]byte
	if _, err = io.ReadFull(conn, length[:]); err != nil {
		return h, p, err
	}
	size := int(binary.BigEndian.Uint16(length[:]))
	if size > budget.NameAnswer {
		return h, p, fmt.Errorf("the answer has %d bytes: at most %d are read", size, budget.NameAnswer)
	}
	buffer := make([]byte, size)
	if _, err = io.ReadFull(conn, buffer); err != nil {
		return h, p, err
	}
	return begin(buffer, id, q)
}

func dial(ctx context.Context, network string, s netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, s.String())
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // ends what waits
	return conn, nil
}
