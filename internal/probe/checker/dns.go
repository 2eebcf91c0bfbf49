package checker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// dnsCheck sends a query, over UDP unless the port is one of TCP.
type dnsCheck struct {
	*model.Check
	Target
	step     string
	question dnsmessage.Question
}

var queryTypes = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CNAME": dnsmessage.TypeCNAME, "MX": dnsmessage.TypeMX,
	"NS": dnsmessage.TypeNS, "PTR": dnsmessage.TypePTR, "SOA": dnsmessage.TypeSOA, "SRV": dnsmessage.TypeSRV, "TXT": dnsmessage.TypeTXT,
}

var responseCodes = map[dnsmessage.RCode]string{
	dnsmessage.RCodeSuccess: "NOERROR", dnsmessage.RCodeNameError: "NXDOMAIN", dnsmessage.RCodeServerFailure: "SERVFAIL",
	dnsmessage.RCodeRefused: "REFUSED", dnsmessage.RCodeNotImplemented: "NOTIMP", dnsmessage.RCodeFormatError: "FORMERR",
}

func newDNSCheck(c *model.Check, t Target) (*dnsCheck, error) {
	name, err := dnsmessage.NewName(c.Name)
	kind, known := queryTypes[c.Query]
	if !known && err == nil {
		err = fmt.Errorf("unknown type of query %q", c.Query)
	}
	return &dnsCheck{c, t, "dns " + c.Name + " " + c.Query, dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET}}, err
}

func (d *dnsCheck) run(ctx context.Context) error {
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{d.question},
	}
	packed, err := query.Pack()
	if err != nil {
		return in(d.step, err)
	}
	buffer := buffers.Get().(*[budget.CheckAnswer]byte)
	defer buffers.Put(buffer)
	if d.Protocol == model.TCP {
		return d.stream(ctx, query.ID, packed, buffer[:])
	}
	conn, err := dial(ctx, model.UDP, d.Target)
	if err != nil {
		return in("connect", err)
	}
	defer conn.Close()
	if _, err := conn.Write(packed); err != nil {
		return in(d.step, err)
	}
	for {
		n, err := conn.Read(buffer[:])
		if err != nil {
			return in(d.step, err)
		}
		// Answers to other queries may be forged.
		if err = d.result(query.ID, buffer[:n]); !errors.Is(err, errOtherQuery) {
			return in(d.step, err)
		}
	}
}

// stream sends the query over TCP, where each message follows its length.
func (d *dnsCheck) stream(ctx context.Context, id uint16, query, buffer []byte) error {
	conn, err := connect(ctx, d.Target)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return in(d.step, err)
	}
	var length [2]byte
	if _, err = io.ReadFull(conn, length[:]); err == nil {
		buffer = buffer[:binary.BigEndian.Uint16(length[:])]
		_, err = io.ReadFull(conn, buffer)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return in(d.step, errors.New("connection closed without an answer"))
	case err != nil:
		return in(d.step, err)
	}
	return in(d.step, d.result(id, buffer))
}

var errOtherQuery = errors.New("the answer is not to this query")

// result checks an answer. A truncated one is an answer, too.
func (d *dnsCheck) result(id uint16, answer []byte) error {
	var p dnsmessage.Parser
	h, err := p.Start(answer)
	if err != nil || h.ID != id || !h.Response {
		return errOtherQuery
	}
	q, err := p.Question()
	// A server that cannot parse or does not accept a query need not repeat it.
	repeated := err == nil && strings.EqualFold(q.Name.String(), d.question.Name.String()) && q.Type == d.question.Type
	code, known := responseCodes[h.RCode]
	switch {
	case !repeated && (err == nil || h.RCode == dnsmessage.RCodeSuccess || h.RCode == dnsmessage.RCodeNameError):
		return errOtherQuery
	case !known:
		code = fmt.Sprintf("response code %d", h.RCode)
	}
	if !slices.Contains(d.Rcodes, code) {
		return fmt.Errorf("%s, expected %s", code, strings.Join(d.Rcodes, " or "))
	}
	return nil
}
