package golden

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// TestBytes encodes the rules of each case and decodes them again. It writes a checksum of
// the bytes: "make test-arm64" compares them between architectures, which must not differ,
// since both store the low byte first.
func TestBytes(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		sum := sha256.New()
		for _, p := range c.phases {
			transaction, err := codec.Encode(plan.Diff(&nft.Ruleset{}, p.rules))
			if err != nil {
				t.Fatal(err)
			}
			for i := range transaction.Messages {
				m := &transaction.Messages[i]
				sum.Write(binary.BigEndian.AppendUint32(nil, uint32(m.Type)))
				sum.Write(m.Data)
				if err := decode(m); err != nil {
					t.Errorf("decode %s: %v", m, err)
				}
			}
		}
		fmt.Fprintf(t.Output(), "bytes %x of %s\n", sum.Sum(nil), t.Name())
	})
}

// decode decodes a message with a rule or elements.
func decode(m *codec.Message) error {
	f := model.IPv4
	if m.Data[0] == unix.NFPROTO_IPV6 {
		f = model.IPv6
	}
	switch m.Type {
	case unix.NFT_MSG_NEWSETELEM:
		return codec.NewElementDecoder(m.Set, f).Message(m.Data, func(e *codec.Element) error {
			if e.IsForeign() {
				return fmt.Errorf("element %v is not one of ours", e)
			}
			return nil
		})
	case unix.NFT_MSG_NEWRULE:
		_, _, _, err := codec.DecodeRule(netlink.Message{Data: m.Data}, f)
		return err
	}
	return nil
}
