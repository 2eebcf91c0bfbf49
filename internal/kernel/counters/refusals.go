package counters

import (
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Refusal counts the first packets of connections that the rules refused for a reason. A client
// that tries again is counted again.
type Refusal struct {
	Reason model.RefusalReason
	// Dialled is the address, protocol and port that clients dialled, or of a range of ports
	// its first port. Reasons that are counted by address have neither protocol nor port, and
	// those that are counted by protocol the unspecified address.
	Dialled model.FrontendID
	Packets uint64 // since the first one after the frontend was added
}

// Refusals returns the counters of refused connections, in no order; none where these are
// not counted.
func (r Reader) Refusals() ([]Refusal, error) {
	return kernel.Consistent(r.Conn, "counters of refused connections", func() (out []Refusal, err error) {
		for _, f := range model.Families {
			for reason, row := range model.Refusals {
				for _, s := range []nft.Shape{nft.OfPort, nft.OfRange} {
					if s == nft.OfRange && row.CountedBy != model.ByFrontend {
						continue
					}
					reason := model.RefusalReason(reason)
					if err = r.readCounts(nft.RefusalOf(reason, s), f, func(id model.FrontendID, packets uint64) {
						out = append(out, Refusal{reason, id, packets})
					}); err != nil {
						return nil, err
					}
				}
			}
		}
		return out, nil
	})
}

// forgetStep is how many counters one transaction removes. It takes less than a millisecond,
// for which a change may have to wait.
const forgetStep = 256

// ForgetRefusals removes the counters for which gone returns true.
func (r Reader) ForgetRefusals(gone func(*Refusal) bool) error {
	all, err := r.Refusals()
	if err != nil {
		return err
	}
	type place struct {
		set    string
		family model.Family
	}
	keys := make(map[place][]nft.Element)
	for i := range all {
		n := &all[i]
		if !gone(n) {
			continue
		}
		d, shape := n.Dialled, nft.OfPort
		if d.Range {
			shape = nft.OfRange
		}
		at := place{nft.RefusalOf(n.Reason, shape), model.FamilyOf(d.Address)}
		keys[at] = append(keys[at], nft.Element{Key: nft.Key{Address: d.Address, Protocol: d.Protocol, Port: d.Port}})
	}
	for at, elements := range keys {
		for some := range slices.Chunk(elements, forgetStep) {
			s := nft.Declare(at.set)
			s.Elements = some
			if err := r.Unbind(at.family, s); err != nil {
				return fmt.Errorf("remove counters of frontends that are gone from set %s of %s: %w", at.set, at.family, err)
			}
		}
	}
	return nil
}
