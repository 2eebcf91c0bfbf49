package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// table is the connection tracking of an empty namespace.
type table struct {
	t  testing.TB
	ns *netlab.Namespace
}

// newTable makes a namespace. It needs root.
func newTable(t testing.TB) *table {
	t.Helper()
	return &table{t, netlab.TestNamespace(t)}
}

func (x *table) do(f func() error) {
	x.t.Helper()
	if err := x.ns.Do(f); err != nil {
		x.t.Fatal(err)
	}
}

// zone is where an entry is; the zero value is the default.
type zone struct {
	id  uint16
	way uint16 // attribute of the tuple that has it; 0: both
}

// add makes entries. Returns is taken as the client.
func (x *table) add(z zone, flows ...Flow) {
	x.t.Helper()
	x.do(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.Close()
		for some := range slices.Chunk(flows, batch) {
			netlinkio.Renew(c)
			var messages []netlink.Message
			for _, f := range some {
				messages = append(messages, x.newEntry(f, z))
			}
			messages[len(messages)-1].Header.Flags |= netlink.Acknowledge
			if _, err := c.SendMessages(messages); err != nil {
				return err
			}
			if _, err := c.Receive(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (x *table) newEntry(f Flow, z zone) netlink.Message {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	tuple := func(typ uint16, from, to netip.AddrPort) {
		e.Nested(typ, func(e *netlink.AttributeEncoder) error {
			e.Nested(nl.CTA_TUPLE_IP, func(e *netlink.AttributeEncoder) error {
				base := uint16(nl.CTA_IP_V4_SRC)
				if to.Addr().Is6() {
					base = nl.CTA_IP_V6_SRC
				}
				e.Bytes(base, from.Addr().AsSlice())
				e.Bytes(base+1, to.Addr().AsSlice())
				return nil
			})
			e.Nested(nl.CTA_TUPLE_PROTO, func(e *netlink.AttributeEncoder) error {
				e.Uint8(nl.CTA_PROTO_NUM, uint8(f.Protocol))
				e.Uint16(nl.CTA_PROTO_SRC_PORT, from.Port())
				e.Uint16(nl.CTA_PROTO_DST_PORT, to.Port())
				return nil
			})
			if z.way == typ {
				e.Uint16(ctaTupleZone, z.id)
			}
			return nil
		})
	}
	tuple(nl.CTA_TUPLE_ORIG, f.Returns, f.Dialled)
	tuple(nl.CTA_TUPLE_REPLY, f.Answers, f.Returns)
	const newEntry = unix.NFNL_SUBSYS_CTNETLINK << 8
	e.Uint32(nl.CTA_TIMEOUT, 3600)
	if z.id != 0 && z.way == 0 {
		e.Uint16(nl.CTA_ZONE, z.id)
	}
	if f.Protocol == model.TCP {
		const established = 3
		e.Nested(nl.CTA_PROTOINFO, func(e *netlink.AttributeEncoder) error {
			e.Nested(nl.CTA_PROTOINFO_TCP, func(e *netlink.AttributeEncoder) error {
				state := uint8(established)
				switch {
				case f.Closing:
					state = nl.TCP_CONNTRACK_LAST_ACK + 1 // TIME_WAIT
				case f.Opening:
					state = nl.TCP_CONNTRACK_SYN_SENT
				}
				e.Uint8(nl.CTA_PROTOINFO_TCP_STATE, state)
				return nil
			})
			return nil
		})
	}
	data, err := e.Encode()
	if err != nil {
		x.t.Fatal(err)
	}
	return netlink.Message{
		Header: netlink.Header{Type: newEntry, Flags: netlink.Request | netlink.Create | netlink.Excl},
		Data:   append(messageHeader(model.FamilyOf(f.Dialled.Addr())), data...),
	}
}

func (x *table) list(f model.Family, p model.Protocol) (all []Flow) {
	x.t.Helper()
	x.do(func() error {
		return Netlink{}.List(f, p, func(f Flow) { all = append(all, f) })
	})
	return all
}

func (x *table) delete(flows []Flow) (n int) {
	x.t.Helper()
	x.do(func() (err error) {
		n, err = Netlink{}.Delete(flows)
		return err
	})
	return n
}

// count returns the number of all entries.
func (x *table) count() (n int) {
	x.t.Helper()
	x.do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err != nil {
			return err
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err
	})
	return n
}

// clients returns one flow each of n clients.
func clients(n int, p model.Protocol, dialled, answers string) []Flow {
	flows := make([]Flow, n)
	for i := range flows {
		flows[i] = flow(p, dialled, answers)
		client := netip.AddrFrom4([4]byte{172, 16, byte(i >> 16), byte(i >> 8)})
		if flows[i].Dialled.Addr().Is6() {
			client = netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 16), 15: byte(i >> 8)})
		}
		flows[i].Client, flows[i].Returns = client, netip.AddrPortFrom(client, uint16(1024+i&0xff))
	}
	return flows
}

func compareFlows(a, b Flow) int { return a.Returns.Compare(b.Returns) }

// What the kernel lists is what was made, in both families, and only in the
// default zone.
func TestList(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	for family, flows := range map[model.Family][]Flow{
		model.IPv4: clients(300, model.UDP, "10.96.0.1:80", "10.0.0.1:8080"),
		model.IPv6: clients(300, model.UDP, "[fd00::1]:80", "[fd00::2]:8080"),
	} {
		elsewhere := slices.Clone(flows)
		for i := range elsewhere {
			elsewhere[i].Answers = netip.AddrPortFrom(flows[i].Answers.Addr(), 8081)
		}
		x.add(zone{}, flows...)
		x.add(zone{id: 7}, flows...)
		x.add(zone{8, nl.CTA_TUPLE_ORIG}, elsewhere...)
		x.add(zone{}, clients(300, model.TCP, flows[0].Dialled.String(), flows[0].Answers.String())...)
		got := x.list(family, model.UDP)
		for i := range got {
			if got[i].ID == 0 {
				t.Fatalf("%+v has no ID", got[i])
			}
			got[i].ID = 0
		}
		slices.SortFunc(got, compareFlows)
		slices.SortFunc(flows, compareFlows)
		if !slices.Equal(got, flows) {
			t.Errorf("%s: %d flows listed, want the %d made, from the same addresses", family, len(got), len(flows))
		}
	}
}

// 9.9: the kernel leaves out what is of another protocol, so that it costs no
// message.
func TestKernelFilters(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	x.add(zone{}, clients(100, model.TCP, "10.96.0.1:80", "10.0.0.1:8080")...)
	x.add(zone{}, clients(3, model.UDP, "10.96.0.1:80", "10.0.0.1:8080")...)
	x.do(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.Close()
		got, err := c.Execute(netlink.Message{
			Header: netlink.Header{Type: getEntry, Flags: netlink.Request | netlink.Dump},
			Data:   append(messageHeader(model.IPv4), encodeFilter(model.UDP, netip.Addr{})...),
		})
		if len(got) != 3 {
			t.Errorf("%d entries are sent, want the 3 of UDP", len(got))
		}
		return err
	})
}

// 9.9, 9.10: entries go in batches, and it does not matter that some have gone
// already. Their neighbours and those in other zones stay.
func TestDelete(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	const n = 5*batch + 1
	x.add(zone{}, clients(n, model.UDP, "10.96.0.1:80", "10.0.0.1:8080")...)
	x.add(zone{id: 7}, clients(n, model.UDP, "10.96.0.1:80", "10.0.0.1:8080")...)
	all := x.list(model.IPv4, model.UDP)
	some := all[:n/2]
	x.add(zone{}, clients(2, model.TCP, "10.96.0.1:80", "10.0.0.1:8080")...)
	if got := x.delete(some); got != len(some) {
		t.Errorf("%d deleted, want %d", got, len(some))
	}
	if got := x.delete(all); got != n-len(some) {
		t.Errorf("%d deleted, want the %d that are left", got, n-len(some))
	}
	if got := x.delete(all); got != 0 {
		t.Errorf("%d deleted, want none a third time", got)
	}
	if got, want := x.count(), n+2; got != want {
		t.Errorf("%d entries are left, want %d: those of TCP and those of the other zone", got, want)
	}
}

// An entry that the client has created again since the listing is a different one,
// even if the kernel gives it the same ID.
func TestEntryMadeAgain(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	sameID := 0
	for range 50 {
		x.add(zone{}, clients(1, model.UDP, "10.96.0.1:80", "10.0.0.1:8080")...)
		listed := x.list(model.IPv4, model.UDP)
		x.delete(listed)
		x.add(zone{}, clients(1, model.UDP, "10.96.0.1:80", "10.0.0.2:8080")...)
		again := x.list(model.IPv4, model.UDP)
		if again[0].ID == listed[0].ID {
			sameID++
		}
		if got := x.delete(listed); got != 0 {
			t.Fatal("the entry that was created again is deleted")
		}
		if got := x.delete(again); got != 1 {
			t.Fatalf("%d deleted, want 1", got)
		}
	}
	fmt.Fprintf(t.Output(), "%d of 50 had the same ID\n", sameID)
}

// An endpoint that sends after the deletion of its client's entry creates one that
// is the reverse of the old one. It is a different entry, too.
func TestEntryOfEndpoint(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	old := clients(1, model.UDP, "10.96.0.1:80", "10.0.0.1:8080")[0]
	x.add(zone{}, old)
	listed := x.list(model.IPv4, model.UDP)
	x.delete(listed)
	x.add(zone{}, Flow{Protocol: model.UDP, Dialled: old.Returns, Answers: old.Returns, Returns: old.Answers})
	if got := x.delete(listed); got != 0 || x.count() != 1 {
		t.Errorf("%d deleted, %d left, want 0 and 1", got, x.count())
	}
}

// Malformed messages are skipped.
func TestDecodeBrokenMessages(t *testing.T) {
	whole := messageHeader(model.IPv4)
	f := flow(model.UDP, "10.96.0.1:80", "10.0.0.1:8080")
	whole = append(whole, f.encode()...) // has no original tuple
	for n := range len(whole) + 1 {
		if got, ok := decode(whole[:n]); ok {
			t.Errorf("%d bytes give %+v", n, got)
		}
	}
}

// reply returns what the kernel would send about a request.
func reply(to netlink.Message, typ netlink.HeaderType, flags netlink.HeaderFlags, data []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: typ, Flags: flags, Sequence: to.Header.Sequence, PID: to.Header.PID},
		Data:   data,
	}
}

// 9.10: what the kernel marks as interrupted is an error, after all that came.
func TestInterruptedDump(t *testing.T) {
	x := table{t: t}
	want := flow(model.UDP, "10.96.0.1:80", "10.0.0.1:8080")
	entry := x.newEntry(want, zone{})
	c := nltest.Dial(func(requests []netlink.Message) ([]netlink.Message, error) {
		return nltest.Multipart([]netlink.Message{
			reply(requests[0], entry.Header.Type, netlink.DumpInterrupted, entry.Data),
			reply(requests[0], entry.Header.Type, 0, entry.Data),
			reply(requests[0], netlink.Done, 0, nil),
		})
	})
	var got []Flow
	err := receiveDump(c, nil, eachFlow(func(f Flow) { got = append(got, f) }))
	if !errors.Is(err, unix.EINTR) || !slices.Equal(got, []Flow{want, want}) {
		t.Errorf("flows %+v, error %v, want both flows and EINTR", got, err)
	}
}

// 9.10: the kernel may refuse to delete an entry, as it did before 6.4 for entries
// in a flow table. The others are deleted, and the error is returned.
func TestRefusedDeletion(t *testing.T) {
	refuse := func(m netlink.Message, errno unix.Errno) netlink.Message {
		return reply(m, netlink.Error, 0, binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))))
	}
	for name, last := range map[string]unix.Errno{"the last is deleted": 0, "the last is gone": unix.ENOENT, "the last is refused": unix.EPERM} {
		t.Run(name, func(t *testing.T) {
			var answers []netlink.Message
			c := nltest.Dial(func(requests []netlink.Message) ([]netlink.Message, error) {
				if len(requests) > 0 {
					answers = []netlink.Message{refuse(requests[1], unix.EBUSY), refuse(requests[2], unix.ENOENT), refuse(requests[4], last)}
				}
				next := answers[0] // each comes in a datagram of its own
				answers = answers[1:]
				return []netlink.Message{next}, nil
			})
			deleted, err := deleteFlows(c, clients(5, model.UDP, "10.96.0.1:80", "10.0.0.1:8080"))
			want := 3
			if last != 0 {
				want--
			}
			if deleted != want || !errors.Is(err, unix.EBUSY) {
				t.Errorf("%d deleted, error %v, want %d and EBUSY", deleted, err, want)
			}
		})
	}
}
