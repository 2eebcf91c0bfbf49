package checker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// past is a deadline that ends reads and writes.
var past = time.Unix(1, 0)

// buffers are for answers: one per check that is under way.
var buffers = sync.Pool{New: func() any { return new([budget.CheckAnswer]byte) }}

// tcpCheck opens a connection, and exchanges text if there is some to expect.
type tcpCheck struct {
	*model.Check
	Target
	matches *regexp.Regexp
}

func newTCPCheck(c *model.Check, t Target) (out *tcpCheck, err error) {
	out = &tcpCheck{Check: c, Target: t}
	if c.ExpectMatches != "" {
		out.matches, err = regexp.Compile(c.ExpectMatches)
	}
	return out, err
}

// missing returns the text or expression that an answer lacks; empty: none.
func (c *tcpCheck) missing(answer []byte) string {
	switch {
	case !bytes.Contains(answer, []byte(c.Expect)):
		return c.Expect
	case c.matches != nil && !c.matches.Match(answer):
		return c.ExpectMatches
	}
	return ""
}

func (c *tcpCheck) run(ctx context.Context) error {
	conn, err := connect(ctx, c.Target)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Expect+c.ExpectMatches == "" {
		return nil
	}
	if _, err := io.WriteString(conn, c.Send); err != nil {
		return in("send", err)
	}
	buffer := buffers.Get().(*[budget.CheckAnswer]byte)
	defer buffers.Put(buffer)
	for n := 0; ; {
		more, err := conn.Read(buffer[n:])
		n += more
		missing := c.missing(buffer[:n])
		switch {
		case missing == "":
			return nil
		case n == len(buffer):
			return fmt.Errorf("no %s in the first %d KiB of the answer", quoted(missing), budget.CheckAnswer>>10)
		case err == nil:
		case n == 0 && err != io.EOF:
			return in("receive "+quoted(missing), err)
		default:
			return unexpected(missing, buffer[:n])
		}
	}
}

func unexpected(want string, got []byte) error {
	if len(got) == 0 {
		return fmt.Errorf("expected %s, got nothing", quoted(want))
	}
	return fmt.Errorf("expected %s, got %s", quoted(want), quoted(string(got)))
}

// maxQuoted is how much of a text is quoted, in bytes.
const maxQuoted = 40

func quoted(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%q...", text[:maxQuoted])
	}
	return fmt.Sprintf("%q", text)
}

// udpCheck sends a datagram, and expects an answer. A closed port answers with ICMP.
type udpCheck struct {
	*model.Check
	Target
}

func (c udpCheck) run(ctx context.Context) error {
	conn, err := dial(ctx, model.UDP, c.Target)
	if err != nil {
		return in("connect", err)
	}
	defer conn.Close()
	send, expect := c.Send, c.Expect
	if c.Echo {
		send = "nftproxy health check " + rand.Text()
		expect = send
	}
	if _, err := io.WriteString(conn, send); err != nil {
		return in("send", err)
	}
	buffer := buffers.Get().(*[budget.CheckAnswer]byte)
	defer buffers.Put(buffer)
	n, err := conn.Read(buffer[:])
	switch {
	case err != nil:
		return in("udp", err)
	case c.Echo && string(buffer[:n]) != expect:
		return errors.New("udp: the answer is not what was sent")
	case !strings.Contains(string(buffer[:n]), expect):
		return unexpected(expect, buffer[:n])
	}
	return nil
}
