package machine

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"

	"github.com/nftproxy/nftproxy/internal/testkit/steer"
)

// destination is "ip daddr & mask == value"; nil: without a mask.
func destination(mask, value []byte) []expr.Any {
	all := []expr.Any{&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: uint32(len(value))}}
	if mask != nil {
		all = append(all, &expr.Bitwise{Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))})
	}
	return append(all, &expr.Cmp{Op: expr.CmpOpEq, Data: value})
}

// TestMasks: a rule of another program is about a prefix only if its mask is the one of a prefix.
func TestMasks(t *testing.T) {
	for _, c := range []struct {
		mask, value []byte
		want        Condition
	}{
		{nil, []byte{10, 1}, Condition{Kind: Destination, Prefix: netip.MustParsePrefix("10.1.0.0/16")}},
		{[]byte{255, 255, 128, 0}, []byte{10, 1, 0, 0}, Condition{Kind: Destination, Prefix: netip.MustParsePrefix("10.1.0.0/17")}},
		{[]byte{0, 0, 0, 0}, []byte{0, 0, 0, 0}, Condition{Kind: Destination, Prefix: netip.MustParsePrefix("0.0.0.0/0")}},
		{[]byte{0, 0, 0, 255}, []byte{0, 0, 0, 7}, Condition{}},
		{[]byte{255, 255, 255, 255, 255}, []byte{10, 1, 0, 0}, Condition{}},
	} {
		d := decoder{family: nftables.TableFamilyIPv4}
		if got := d.decodeRule(destination(c.mask, c.value)).When; !reflect.DeepEqual(got, []Condition{c.want}) {
			t.Errorf("mask %v, value %v: %+v, want %+v", c.mask, c.value, got, c.want)
		}
	}
}

// FuzzRule: any rule of another program is conditions that can be compared with a packet, and a verdict.
func FuzzRule(f *testing.F) {
	steer.Seed(f, 0, 20, 60, 200)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, left := steer.New(data)
		var all []expr.Any
		for left.Left() > 0 {
			all = append(all, someExpression(r))
		}
		d := decoder{family: []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet}[r.IntN(3)]}
		rule := d.decodeRule(all)
		for _, c := range rule.When {
			if (c.Kind == Source || c.Kind == Destination) != c.Prefix.IsValid() {
				t.Errorf("%+v of %+v", c, all)
			}
		}
		if len(rule.When) > len(all) || rule.Verdict == Jump && rule.To == "" {
			t.Errorf("%+v of %d expressions", rule, len(all))
		}
	})
}

// someExpression returns one that conditions are made of, or a verdict. Lookups ask the kernel.
func someExpression(r *rand.Rand) expr.Any {
	some := func() []byte {
		b := make([]byte, []int{0, 1, 2, 4, 5, 16}[r.IntN(6)])
		for i := range b {
			b[i] = []byte{0, 255, 128, 10}[r.IntN(4)]
		}
		return b
	}
	switch r.IntN(8) {
	case 0:
		return &expr.Meta{Key: []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyNFPROTO, expr.MetaKeyL4PROTO}[r.IntN(3)], SourceRegister: r.IntN(4) == 0}
	case 1:
		return &expr.Ct{Key: []expr.CtKey{expr.CtKeySTATE, expr.CtKeySTATUS}[r.IntN(2)]}
	case 2, 3:
		return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: []uint32{8, 9, 12, 16, 24}[r.IntN(5)], Len: []uint32{1, 2, 4, 16}[r.IntN(4)]}
	case 4:
		return &expr.Bitwise{Mask: some()}
	case 5, 6:
		return &expr.Cmp{Op: []expr.CmpOp{expr.CmpOpEq, expr.CmpOpNeq}[r.IntN(2)], Data: some()}
	}
	info := xt.Unknown(some())
	return []expr.Any{&expr.Target{Name: "CT", Info: &info}, &expr.Match{Name: "conntrack", Info: &xt.ConntrackMtinfo3{}}, &expr.Verdict{Kind: expr.VerdictJump, Chain: "x"}, &expr.Limit{}}[r.IntN(4)]
}
