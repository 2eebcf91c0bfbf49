// Package checker makes health checks: one check of one endpoint, over TCP, HTTP,
// HTTPS, gRPC, UDP or DNS, or with a program.
//
// A check uses a connection of its own, which it resets at the end: thousands of checks
// a second leave no socket in TIME-WAIT, and an endpoint sees what a new client would.
// Neither proxies of the environment nor redirects are followed.
package checker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Checker checks an endpoint. It is safe for concurrent use.
type Checker interface {
	// Check returns nil if the endpoint is healthy. An error is one short line for
	// people; it is that of the context if that is cancelled, and wraps [ErrLocal] if
	// this machine could not make the check.
	Check(ctx context.Context) error
}

type Target struct {
	Address  netip.AddrPort
	Protocol model.Protocol // of the port, for types of check that fit several; zero: the usual one
	Service  model.ServiceName
	Ports    Ports // nil: they are never few
}

// Ports are the source ports of masqueraded connections.
type Ports interface {
	// Has reports whether these connections leave few of the ports from 1024 on for connections to an address and port.
	Has(model.Protocol, netip.AddrPort) bool
}

// ErrLocal means that a result says nothing about the endpoint: this machine has no
// descriptor, memory or port left for the check.
var ErrLocal = errors.New("this machine cannot make the check")

// New returns a checker of an endpoint.
func New(c *model.Check, t Target) (Checker, error) {
	if !t.Address.IsValid() || t.Address.Port() == 0 {
		return nil, fmt.Errorf("make health check of %s: %s is not an address with a port", t.Service, t.Address)
	}
	var made runner
	var err error
	switch c.Type {
	case model.CheckTCP:
		made, err = newTCPCheck(c, t)
	case model.CheckUDP:
		made = udpCheck{c, t}
	case model.CheckHTTP, model.CheckHTTPS:
		made, err = newHTTPCheck(c, t)
	case model.CheckGRPC:
		made = newGRPCCheck(c, t)
	case model.CheckDNS:
		made, err = newDNSCheck(c, t)
	case model.CheckExec:
		made = execCheck{c, t}
	default:
		err = errors.New("unknown type")
	}
	if err != nil {
		return nil, fmt.Errorf("make health check of %s of type %s: %w", t.Service, c.Type, err)
	}
	return &limited{made, c}, nil
}

// limited ends a check at its timeout.
type limited struct {
	runner
	check *model.Check
}

type runner interface{ run(context.Context) error }

func (l *limited) Check(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, l.check.Timeout)
	defer cancel()
	err := l.run(limit)
	var errno syscall.Errno
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &errno) && localErrors[errno]:
		return fmt.Errorf("%w: %w", ErrLocal, errno)
	}
	text := l.explain(err)
	if len(text) > budget.CheckError {
		text = strings.ToValidUTF8(text[:budget.CheckError], "") + "..."
	}
	return errors.New(terminal.Printable(text))
}

// localErrors are those of system calls that say nothing about the endpoint.
var localErrors = map[syscall.Errno]bool{
	syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOMEM: true, syscall.ENOBUFS: true,
	syscall.EADDRNOTAVAIL: true, syscall.EAGAIN: true,
}

// stepError is an error of a step of a check, such as "connect".
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// in names the step that an error is of.
func in(step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{step, err}
}

// explain returns for example "connect: refused" or "GET /healthz: no answer within 1s".
func (l *limited) explain(err error) string {
	step := ""
	for s, ok := err.(*stepError); ok; s, ok = err.(*stepError) {
		step, err = step+s.step+": ", s.err
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%sno answer within %s", step, l.check.Timeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return step + "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return step + "connection reset"
	case errors.As(err, &errno):
		return step + errno.Error()
	}
	return step + strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "tls: ")
}

// dialer opens connections. Keep-alive probes would only cost system calls.
var dialer = net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1}

// connect opens a TCP connection that ends with the context.
func connect(ctx context.Context, to Target) (net.Conn, error) {
	conn, err := dial(ctx, model.TCP, to)
	if err != nil {
		return nil, in("connect", err)
	}
	// Close resets the connection: no TIME-WAIT, and nothing left to be sent.
	_ = conn.Conn.(*net.TCPConn).SetLinger(0)
	return conn, nil
}

// dial opens a connection whose reads and writes end with the context.
func dial(ctx context.Context, over model.Protocol, to Target) (*limitedConn, error) {
	d := dialer
	if to.Ports != nil && to.Ports.Has(over, to.Address) {
		d.Control = bindLowPort
	}
	conn, err := d.DialContext(ctx, over.String(), to.Address.String())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	return &limitedConn{conn, stop}, nil
}

// limitedConn is a connection that ends with a context.
type limitedConn struct {
	net.Conn
	stop func() bool
}

func (c *limitedConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// open opens a connection, with TLS if the check has it. Without verification, any certificate is accepted:
// the question is whether the endpoint answers, as for the probes of a kubelet.
func open(ctx context.Context, c *model.Check, t Target, protocols ...string) (net.Conn, error) {
	conn, err := connect(ctx, t)
	if err != nil || !c.TLS && c.Type != model.CheckHTTPS {
		return conn, err
	}
	secured := tls.Client(conn, &tls.Config{ServerName: cmp.Or(c.Host, t.Address.Addr().String()), InsecureSkipVerify: !c.Verify, NextProtos: protocols})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, in("TLS", err)
	}
	return secured, nil
}
