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
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// repeats is how many are made until a datagram or an association that should be rejected is: the
// kernel limits how many errors of ICMP a client gets, to one in a second.
const repeats = 5

// Repeat opens a connection, and opens it again if the client should get an error that may have been
// limited.
func (d *Dial) Repeat(open func() (Attempt, error)) (a Attempt, err error) {
	for range repeats {
		a, err = open()
		if err != nil || d.Protocol == model.TCP.String() || a.Outcome != Silent || a.Endpoint.IsValid() || !d.Rejected {
			break
		}
	}
	return a, err
}

// OpenAll opens the connections of a list from this machine, by sockets that every operating system has and
// every user may open: where no endpoint answers with its name, none is known. It calls each with what
// happened in the order in which it ends, one at a time. sctp opens an association.
func OpenAll(ctx context.Context, list []Dial, sctp func(context.Context, *Dial) (Attempt, error), each func(*Dialled)) {
	parallel.Each(len(list), Parallel, func(i int) Dialled {
		d := &list[i]
		isWrong := func(a *Attempt) bool { return (a.Outcome == Answered) == d.Refused }
		return d.Run(ctx, isWrong, func(ctx context.Context) (Attempt, error) {
			if d.Protocol == model.SCTP.String() {
				return d.Repeat(func() (Attempt, error) { return sctp(ctx, d) })
			}
			return d.Repeat(func() (Attempt, error) { return d.openOnce(ctx) })
		})
	}, func(i int, got Dialled) {
		got.Index = i
		each(&got)
	})
}

// WithoutSCTP is for machines without sockets of SCTP.
func WithoutSCTP(context.Context, *Dial) (Attempt, error) {
	return Attempt{Outcome: Unsupported}, nil
}

func (d *Dial) openOnce(ctx context.Context) (a Attempt, err error) {
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
	case errors.Is(failure, os.ErrDeadlineExceeded), errors.Is(failure, os.ErrPermission), errors.As(failure, &timeout) && timeout.Timeout():
		a.Outcome = Silent
	case strings.Contains(failure.Error(), "refused"), strings.Contains(failure.Error(), "reset"): // numbers differ by system
		a.Outcome = Refused
	default:
		a.Outcome, a.Error = Failed, failure.Error()
	}
	return a, nil
}

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
	if !datagram && d.Learns != Answers {
		return nil
	}
	var refused error
	if datagram {
		_, refused = c.Write(nil)
	}
	line := make([]byte, MaxAnswer)
	n, err := c.Read(line)
	// What rules of this machine reject or drop is "not permitted". A rejection follows.
	if refused != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return refused
	}
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
