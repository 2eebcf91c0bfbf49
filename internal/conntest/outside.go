package conntest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// repeats is how many are made until a datagram or an association that should be rejected is: the
// kernel limits how many errors of ICMP a client gets, to one in a second.
const repeats = 5

// Repeat opens a connection, and opens it again if the client should get an error that may have been
// limited.
func Repeat(protocol model.Protocol, rejects bool, open func() (Attempt, error)) (a Attempt, err error) {
	for range repeats {
		a, err = open()
		if err != nil || protocol == model.TCP || a.Outcome != Silent || a.Endpoint.IsValid() || !rejects {
			break
		}
	}
	return a, err
}

// OpenOutside opens the connections of a list from this machine, by sockets that every operating system
// has: where no endpoint answers with its name, none is known.
func OpenOutside(ctx context.Context, list []Dial, each func(*Dialled)) {
	RunAll(ctx, list, func(ctx context.Context, d *Dial) Dialled {
		protocol, err := model.ParseProtocol(d.Protocol)
		if err != nil {
			return Dialled{Error: err.Error()}
		}
		return d.Run(ctx, func(ctx context.Context) (Attempt, error) {
			return Repeat(protocol, d.Rejected, func() (Attempt, error) { return d.openOnce(ctx) })
		})
	}, each)
}

// openOnce opens one connection.
func (d *Dial) openOnce(ctx context.Context) (a Attempt, err error) {
	if d.Protocol == model.SCTP.String() {
		return Attempt{Outcome: Unsupported}, nil
	}
	wait := d.Wait
	if d.Refused || d.Protocol == model.UDP.String() {
		wait = min(wait, ShortPatience)
	}
	failure := d.exchange(ctx, wait, &a)
	switch timeout := net.Error(nil); {
	case ctx.Err() != nil:
		return a, ctx.Err()
	case failure == nil:
		a.Outcome = Answered
	case errors.Is(failure, os.ErrDeadlineExceeded), errors.As(failure, &timeout) && timeout.Timeout():
		a.Outcome = Silent
	case strings.Contains(failure.Error(), "refused"), strings.Contains(failure.Error(), "reset"): // numbers differ by system
		a.Outcome = Refused
	default:
		a.Outcome, a.Error = Failed, failure.Error()
	}
	return a, nil
}

// exchange connects, and reads the answer where one is expected.
func (d *Dial) exchange(ctx context.Context, wait time.Duration, a *Attempt) error {
	c, err := (&net.Dialer{Timeout: wait}).DialContext(ctx, d.Protocol, d.To.String())
	if err != nil {
		return err
	}
	defer c.Close()
	own, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return fmt.Errorf("read own address: %w", err)
	}
	a.Client = own.Addr().Unmap().WithZone("")
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	datagram := d.Protocol == model.UDP.String()
	if datagram {
		if _, err := c.Write(nil); err != nil {
			return err
		}
	}
	if !datagram && d.Learns != Answers {
		return nil
	}
	line := make([]byte, MaxAnswer)
	n, err := c.Read(line)
	if err == nil && d.Learns == Answers {
		err = a.ParseAnswer(string(line[:n]))
	}
	return err
}

// RoutedSource returns the source address of this machine for a destination, or
// the zero Addr if it has no route there. Connecting a datagram socket looks up
// the route and sends nothing.
func RoutedSource(to netip.Addr) netip.Addr {
	c, err := net.Dial("udp", netip.AddrPortFrom(to, 9).String())
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	own, _ := netip.ParseAddrPort(c.LocalAddr().String())
	return own.Addr().Unmap().WithZone("")
}
