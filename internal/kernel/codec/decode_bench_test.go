package codec

import (
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// BenchmarkDecode decodes the elements and rules of 1,000 services, as dumps have
// them.
func BenchmarkDecode(b *testing.B) {
	transaction, err := Encode(plan.Diff(&nft.Ruleset{}, workload.Scaled(1000)))
	if err != nil {
		b.Fatal(err)
	}
	elements := 0
	b.ReportAllocs()
	for b.Loop() {
		elements = 0
		for i := range transaction.Messages {
			m := &transaction.Messages[i]
			message := netlink.Message{Data: m.Data}
			switch m.Type {
			case unix.NFT_MSG_NEWSETELEM:
				d := NewElementDecoder(m.Set, familyOf(m))
				if err := d.Message(m.Data, func(*Element) error { elements++; return nil }); err != nil {
					b.Fatal(err)
				}
			case unix.NFT_MSG_NEWRULE:
				if _, _, _, err := DecodeRule(message, familyOf(m)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(elements), "elements")
}

// TestDecodeAllocates: a message without comments is decoded without memory of its own,
// because a restart reads a message for each element.
func TestDecodeAllocates(t *testing.T) {
	transaction, err := Encode(plan.Diff(&nft.Ruleset{}, workload.Scaled(1)))
	if err != nil {
		t.Fatal(err)
	}
	decoded := 0
	for i := range transaction.Messages {
		m := &transaction.Messages[i]
		if m.Type != unix.NFT_MSG_NEWSETELEM || m.Set.Name != nft.EndpointsMap {
			continue
		}
		d := NewElementDecoder(m.Set, familyOf(m))
		each := func(*Element) error { decoded++; return nil }
		if n := testing.AllocsPerRun(100, func() { err = d.Message(m.Data, each) }); n > 0 || err != nil {
			t.Errorf("%v allocations, %v", n, err)
		}
	}
	if decoded == 0 {
		t.Error("no elements")
	}
}

func familyOf(m *Message) model.Family {
	if m.Data[0] == unix.NFPROTO_IPV6 {
		return model.IPv6
	}
	return model.IPv4
}
