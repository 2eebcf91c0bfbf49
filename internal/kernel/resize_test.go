package kernel

import (
	"bytes"
	"errors"
	"iter"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// between is a socket that calls a function between the first and the second datagram with
// elements of the map of endpoints.
type between struct {
	*socket
	call func()
}

func (b *between) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		elements := false
		for m, err := range b.socket.ReceiveIter() {
			elements = elements || m.Header.Type == messageType(unix.NFT_MSG_NEWSETELEM) && bytes.Contains(m.Data, []byte(nft.EndpointsMap+"\x00"))
			if !yield(m, err) {
				return
			}
		}
		if call := b.call; elements && call != nil {
			b.call = nil
			call()
		}
	}
}

// resize has the kernel resize the hash table of the map of endpoints, without a new
// generation: a transaction that is undone adds many elements. It returns when the elements
// have another order.
func (s *sandbox) resize(t *testing.T, held *nft.Ruleset) {
	t.Helper()
	before := s.order(t)
	more := workload.Clone(held)
	m := more.Tables[0].Set(nft.EndpointsMap)
	for i, e := range slices.Repeat(m.Elements, 3) {
		e.Key.Slot = uint32(1000 + i)
		m.Elements = append(m.Elements, e)
	}
	m.Sort()
	undone, err := codec.Encode(plan.Diff(held, more))
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.sendBatch(undone, undone.Size(), AnyGeneration, true)
	if err == nil {
		err = s.receiveAnswer(undone, first)
	}
	if err != nil {
		t.Fatal(err)
	}
	for slices.Equal(s.order(t), before) {
		runtime.Gosched()
	}
}

// order returns the keys of the map of endpoints as the kernel lists them.
func (s *sandbox) order(t *testing.T) (keys []nft.Key) {
	t.Helper()
	set, _, err := s.Set(nft.EndpointsMap, model.IPv4)
	if err == nil {
		err = s.EachElement(set, model.IPv4, func(e *codec.Element) error { keys = append(keys, e.Key); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestResizedDuringListing: while a set is listed the kernel may resize its hash table, which
// changes no generation. It goes on at the same place of another order: some elements are
// missing, and as many come twice. Such a listing is never the result: not where the kernel
// counts the elements, and not before 6.16, where it does not.
func TestResizedDuringListing(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // no other connection lists the map
	held := workload.Scenario(500, 4, 0)            // more than two datagrams
	s := newSandbox(t)
	s.apply(t, held)
	other, socket, times := s.another(t), &between{socket: s.socket}, 0
	s.nl = netlink.NewConn(socket, s.nl.PID())
	disturb := func() { times++; other.resize(t, held) }

	want := len(held.Tables[0].Set(nft.EndpointsMap).Elements)
	socket.call = disturb
	keys := s.order(t)
	seen := make(map[nft.Key]bool)
	for _, k := range keys {
		seen[k] = true
	}
	if len(keys) != want || len(seen) >= want {
		t.Errorf("the kernel lists %d elements, %d of them different, of %d: the test disturbs nothing", len(keys), len(seen), want)
	}

	for _, count := range []int{want, codec.UnknownCount} {
		set, _, err := s.Set(nft.EndpointsMap, model.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		socket.call = disturb
		e := &elements{set: set, family: model.IPv4, count: count}
		if err := e.dumpAll(s.Conn); !errors.Is(err, ErrInconsistent) || OutcomeOf(err) != Later {
			t.Errorf("with count %d: error %v", count, err)
		}
	}

	times, socket.call = 0, disturb
	got, generation, err := s.Read()
	if err != nil || times != 1 || generation == AnyGeneration {
		t.Fatalf("disturbed %d times, generation %d, %v", times, generation, err)
	}
	if diff := cmp.Diff(workload.Sorted(plan.Settle(got, held)), workload.Sorted(got)); diff != "" {
		t.Errorf("the rules differ from what was applied (-want +got):\n%s", diff)
	}
}
