package kernel

import (
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/workload"
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
				d := newElementDecoder(m.Set, familyOf(m))
				if err := d.message(m.Data, func(*element) error { elements++; return nil }); err != nil {
					b.Fatal(err)
				}
			case unix.NFT_MSG_NEWRULE:
				if _, _, _, err := decodeRule(message, familyOf(m)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(elements), "elements")
}

func familyOf(m *Message) model.Family {
	if m.Data[0] == unix.NFPROTO_IPV6 {
		return model.IPv6
	}
	return model.IPv4
}
