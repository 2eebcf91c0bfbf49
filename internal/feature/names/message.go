package names

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// udpSize is the answer that we accept over UDP: it is never fragmented (RFC 9715, 3.2).
	udpSize = 1232
	// maxAliases is how many CNAME records of an answer are followed.
	maxAliases = 8
)

// errOther is why a message is no answer to a question: it may be forged.
var errOther = errors.New("is no answer to the question")

// answer has what a server knows about a name and a type.
type answer struct {
	addresses []netip.Addr // as given, of the family of the question
	targets   []target     // of SRV records
	refused   int          // addresses that no server can have
	ttl       uint32       // the least of all records that were used, in seconds
}

type target struct {
	name             string
	port             uint16
	priority, weight uint16
}

func pack(id uint16, q dnsmessage.Question, extended bool) ([]byte, error) {
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), dnsmessage.Header{ID: id, RecursionDesired: true})
	b.EnableCompression()
	if err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAdditionals()); err != nil {
		return nil, err
	}
	if extended {
		var h dnsmessage.ResourceHeader
		if err := errors.Join(h.SetEDNS0(udpSize, dnsmessage.RCodeSuccess, false), b.OPTResource(h, dnsmessage.OPTResource{})); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

// codeError is a response code that says nothing about the name.
type codeError dnsmessage.RCode

func (e codeError) Error() string {
	texts := map[dnsmessage.RCode]string{
		dnsmessage.RCodeServerFailure: "SERVFAIL", dnsmessage.RCodeRefused: "REFUSED",
		dnsmessage.RCodeNotImplemented: "NOTIMP", dnsmessage.RCodeFormatError: "FORMERR",
	}
	if text := texts[dnsmessage.RCode(e)]; text != "" {
		return text
	}
	return fmt.Sprintf("response code %d", uint16(e))
}

// begin reads the header and the question of a message. It returns errOther for one that is no
// answer.
func begin(message []byte, id uint16, q dnsmessage.Question) (h dnsmessage.Header, p dnsmessage.Parser, err error) {
	if h, err = p.Start(message); err != nil || h.ID != id || !h.Response || h.OpCode != 0 {
		return h, p, errOther
	}
	asked, err := p.Question()
	switch {
	case errors.Is(err, dnsmessage.ErrSectionDone) && h.RCode != dnsmessage.RCodeSuccess && h.RCode != dnsmessage.RCodeNameError:
		return h, p, nil // a server that does not accept a question need not repeat it
	case err != nil, asked.Type != q.Type, asked.Class != q.Class, !strings.EqualFold(asked.Name.String(), q.Name.String()):
		return h, p, errOther
	}
	return h, p, p.SkipAllQuestions()
}

// parse reads an answer, which may be hostile. A name without records of the type has none.
func parse(p *dnsmessage.Parser, h dnsmessage.Header, q dnsmessage.Question) (*answer, error) {
	switch h.RCode {
	case dnsmessage.RCodeSuccess:
	case dnsmessage.RCodeNameError:
		return &answer{ttl: noTTL}, nil
	default:
		return nil, codeError(h.RCode)
	}
	all, err := p.AllAnswers()
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	owner, ttl := resolve(all, q)
	out := &answer{ttl: ttl}
	for i := range all {
		if h := &all[i].Header; h.Class == q.Class && h.Type == q.Type && strings.EqualFold(h.Name.String(), owner) {
			out.add(&all[i])
		}
	}
	return out, nil
}

// resolve returns the name to which the aliases of a question lead, and the least TTL of these.
func resolve(all []dnsmessage.Resource, q dnsmessage.Question) (owner string, ttl uint32) {
	aliases := make(map[string]*dnsmessage.Resource)
	for i := range all {
		if h := &all[i].Header; h.Class == q.Class && h.Type == dnsmessage.TypeCNAME {
			aliases[strings.ToLower(h.Name.String())] = &all[i]
		}
	}
	owner, ttl = strings.ToLower(q.Name.String()), noTTL
	for range maxAliases {
		alias := aliases[owner]
		if alias == nil {
			break
		}
		to, ok := alias.Body.(*dnsmessage.CNAMEResource)
		if !ok {
			break
		}
		owner, ttl = strings.ToLower(to.CNAME.String()), min(ttl, ttlOf(&alias.Header))
	}
	return owner, ttl
}

// ttlOf returns the TTL of a record. One with the highest bit counts as zero (RFC 2181, 8).
func ttlOf(h *dnsmessage.ResourceHeader) uint32 {
	if h.TTL > 1<<31-1 {
		return 0
	}
	return h.TTL
}

func (a *answer) add(r *dnsmessage.Resource) {
	a.ttl = min(a.ttl, ttlOf(&r.Header))
	switch body := r.Body.(type) {
	case *dnsmessage.AResource:
		a.address(netip.AddrFrom4(body.A))
	case *dnsmessage.AAAAResource:
		a.address(netip.AddrFrom16(body.AAAA))
	case *dnsmessage.SRVResource:
		if name := body.Target.String(); name != "." { // else the service does not exist (RFC 2782)
			a.targets = append(a.targets, target{strings.ToLower(name), body.Port, body.Priority, body.Weight})
		}
	}
}

// address adds an address that a server may have: others would lead packets of clients to this
// machine itself, or to many.
func (a *answer) address(ip netip.Addr) {
	if usable(ip) {
		a.addresses = append(a.addresses, ip)
	} else {
		a.refused++
	}
}

func usable(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !ip.Is4In6() && ip.Zone() == ""
}

// question returns the question for a name that ends with a dot.
func question(name string, t dnsmessage.Type) (dnsmessage.Question, error) {
	n, err := dnsmessage.NewName(name)
	return dnsmessage.Question{Name: n, Type: t, Class: dnsmessage.ClassINET}, err
}
