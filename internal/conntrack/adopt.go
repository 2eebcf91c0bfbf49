package conntrack

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Attributes of a translation, of <linux/netfilter/nfnetlink_conntrack.h>.
const (
	ctaNATv4Min = 1
	ctaNATv4Max = 2
	ctaNATProto = 3
	ctaNATv6Min = 4
	ctaNATv6Max = 5

	ctaProtoNATPortMin = 1
	ctaProtoNATPortMax = 2
)

// beLiberal accepts packets outside of the window: connection tracking has not seen those
// of an adopted connection (IP_CT_TCP_FLAG_BE_LIBERAL).
const beLiberal = 1 << 3

// adoption is a flow that IPVS translates, and what its entry is made of again.
type adoption struct {
	Flow
	client                netip.AddrPort
	status, timeout, mark uint32
	tcp                   []byte // attributes of its state, for another entry
}

// Adoption is the TCP and UDP flows that IPVS translates, for connection tracking to
// translate them instead: each to the same endpoint, and from the same source. They then
// need no virtual server, and what they dialled need not be an address of this machine.
//
// IPVS must record its flows in connection tracking (net.ipv4.vs.conntrack), as kube-proxy
// has it do. When IPVS forgets a flow, it deletes the entry of connection tracking as well,
// so that the new one can only be made after that (ip_vs_conn_drop_conntrack of the kernel).
type Adoption struct {
	pending []adoption
	// Adopted is how many flows have their new entry.
	Adopted int
}

// ListAdoption lists the flows, of which takes selects some by what was dialled.
func ListAdoption(takes func(p model.Protocol, dialled netip.AddrPort) bool) (*Adoption, error) {
	pending, err := listUntranslated(takes)
	return &Adoption{pending: pending}, err
}

// Pending returns how many flows have no new entry yet.
func (a *Adoption) Pending() int { return len(a.pending) }

// Restore makes the new entries of flows whose old one is gone.
func (a *Adoption) Restore() error {
	made, left, err := replaceFlows(a.pending, false)
	a.Adopted += made
	a.pending = left
	return err
}

// Finish replaces the entries of flows that IPVS no longer knows or does not forget, of the same selection. A
// packet between the deletion of an entry and its replacement, which are one system call,
// begins a new connection. A client that has begun one before keeps that.
func (a *Adoption) Finish(takes func(p model.Protocol, dialled netip.AddrPort) bool) error {
	rest, listErr := listUntranslated(takes)
	made, _, err := replaceFlows(rest, true)
	a.Adopted += made
	a.pending = nil
	return errors.Join(listErr, err)
}

// listUntranslated lists flows. A dump that other changes interrupted is repeated.
func listUntranslated(takes func(model.Protocol, netip.AddrPort) bool) (found []adoption, err error) {
	err = withSocket("list connections of IPVS", func(c *netlink.Conn) (err error) {
		for _, f := range model.Families {
			for _, p := range []model.Protocol{model.TCP, model.UDP} {
				before := found
				interrupted := func(err error) bool { return errors.Is(err, unix.EINTR) }
				err = errors.Join(err, netlinkio.Retry(interrupted, func() error {
					found = before
					return receiveDump(c, append(messageHeader(f), encodeFilter(p, netip.Addr{})...), func(message []byte) {
						if a, ok := decodeAdoption(message); ok && a.Protocol == p && takes(p, a.Dialled) {
							found = append(found, a)
						}
					})
				}))
			}
		}
		return err
	})
	return found, err
}

// replaceFlows makes new entries, with old ones deleted before if these are to be replaced. It
// returns how many were made, and the flows that still have another entry.
func replaceFlows(flows []adoption, old bool) (made int, left []adoption, err error) {
	if len(flows) == 0 {
		return 0, nil, nil
	}
	err = withSocket("take over connections of IPVS", func(c *netlink.Conn) error {
		for some := range slices.Chunk(flows, batch/2) {
			others, err := replaceSome(c, some, old)
			made += len(some) - len(others)
			if left = append(left, others...); err != nil {
				return err
			}
		}
		return nil
	})
	return made, left, err
}

func replaceSome(c *netlink.Conn, flows []adoption, old bool) (left []adoption, err error) {
	var messages []netlink.Message
	for i := range flows {
		f := &flows[i]
		if old {
			messages = append(messages, newRequest(deleteEntry, 0, f.Dialled, f.Flow.encode()))
		}
		messages = append(messages, newRequest(newEntry, netlink.Create|netlink.Excl, f.Dialled, f.encode()))
	}
	sent, refused, err := sendAll(c, messages)
	if err != nil {
		return flows, err
	}
	each := len(messages) / len(flows)
	for _, r := range refused {
		i := slices.IndexFunc(sent, func(m netlink.Message) bool { return m.Header.Sequence == uint32(r.Sequence) })
		switch {
		case errors.Is(r, unix.EEXIST) && i >= 0:
			left = append(left, flows[i/each])
		case !errors.Is(r, unix.ENOENT): // it has ended before its deletion
			err = errors.Join(err, r)
		}
	}
	return left, err
}

// decodeAdoption decodes a message of a dump. It returns false unless IPVS translates the
// flow: it goes to another address than the one that was dialled, and connection tracking
// does not translate that.
func decodeAdoption(message []byte) (a adoption, ok bool) {
	if a.Flow, ok = decode(message); !ok || a.Closing || a.Answers == a.Dialled {
		return a, false
	}
	var err error
	attributes := netlinkio.ReadMessage(message, &err)
	for attributes.Next() {
		switch attributes.Type {
		case nl.CTA_TUPLE_ORIG:
			original := decodeTuple(attributes.Nested())
			a.client = original.sourceAddress()
		case nl.CTA_STATUS:
			a.status = decodeNumber(attributes.Data)
		case nl.CTA_TIMEOUT:
			a.timeout = decodeNumber(attributes.Data)
		case nl.CTA_MARK:
			a.mark = decodeNumber(attributes.Data)
		case nl.CTA_PROTOINFO:
			for p := attributes.Nested(); p.Next(); {
				if p.Type == nl.CTA_PROTOINFO_TCP {
					a.tcp = withLiberalWindow(p.Nested())
				}
			}
		}
	}
	return a, err == nil && a.status&translatesDst == 0
}

// withLiberalWindow copies the state of a TCP connection, with flags that accept packets outside of
// the window.
func withLiberalWindow(state netlinkio.Attributes) (out []byte) {
	for state.Next() {
		switch state.Type {
		case nl.CTA_PROTOINFO_TCP_STATE, nl.CTA_PROTOINFO_TCP_WSCALE_ORIGINAL, nl.CTA_PROTOINFO_TCP_WSCALE_REPLY:
			out = append(out, encodeAttribute(state.Type, state.Data)...)
		case nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, nl.CTA_PROTOINFO_TCP_FLAGS_REPLY:
			if len(state.Data) > 0 {
				flags := state.Data[0] | beLiberal
				out = append(out, encodeAttribute(state.Type, []byte{flags, flags})...)
			}
		}
	}
	return out
}

// encode encodes the entry to make. The kernel translates one whose two tuples mirror each
// other.
func (a *adoption) encode() []byte {
	out := slices.Concat(
		encodeTuple(nl.CTA_TUPLE_ORIG, a.Protocol, a.client, a.Dialled),
		encodeTuple(nl.CTA_TUPLE_REPLY, a.Protocol, a.Dialled, a.client),
		encodeNested(ctaNATDestination, encodeTranslation(a.Answers)...),
		encodeAttribute(nl.CTA_STATUS, encodeUint32(confirmed|a.status&(seenReply|assured))),
		encodeAttribute(nl.CTA_TIMEOUT, encodeUint32(max(a.timeout, 1))))
	if a.Returns != a.client {
		out = append(out, encodeNested(ctaNATSource, encodeTranslation(a.Returns)...)...)
	}
	if a.mark != 0 {
		out = append(out, encodeAttribute(nl.CTA_MARK, encodeUint32(a.mark))...)
	}
	if a.tcp != nil {
		out = append(out, encodeNested(nl.CTA_PROTOINFO, encodeNested(nl.CTA_PROTOINFO_TCP, a.tcp))...)
	}
	return out
}

func encodeTranslation(to netip.AddrPort) [][]byte {
	least, most := uint16(ctaNATv4Min), uint16(ctaNATv4Max)
	if to.Addr().Is6() {
		least, most = ctaNATv6Min, ctaNATv6Max
	}
	return [][]byte{
		encodeAttribute(least, to.Addr().AsSlice()), encodeAttribute(most, to.Addr().AsSlice()),
		encodeNested(ctaNATProto, encodeAttribute(ctaProtoNATPortMin, encodeUint16(to.Port())), encodeAttribute(ctaProtoNATPortMax, encodeUint16(to.Port()))),
	}
}
