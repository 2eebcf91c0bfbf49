package names

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/budget"
)

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
