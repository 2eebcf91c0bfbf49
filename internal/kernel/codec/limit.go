package codec

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// limitExpressions are the names of the expressions that elements of a set with limits
// have, by the type of limits.
var limitExpressions = []string{nft.NoLimits: "", nft.RateLimits: "limit", nft.ConnectionLimits: "connlimit"}

// limitExpr returns the expression that matches what exceeds a limit.
//
//	[ limit rate 100/second burst 20 type packets flags 0x1 ]
//	[ connlimit count 20 flags 1 ]
func limitExpr(l nft.Limit) expr.Any {
	if l.Rate.Amount == 0 {
		return &expr.Connlimit{Count: l.Connections, Flags: expr.NFT_CONNLIMIT_F_INV}
	}
	return rateExpr(l.Rate, true)
}

// rateExpr returns the expression that matches what is within a rate, or exceeds it.
func rateExpr(r model.Rate, over bool) *expr.Limit {
	return &expr.Limit{
		Type: expr.LimitTypePkts, Rate: uint64(r.Amount), Over: over,
		Unit: expr.LimitTime(r.Unit.Duration() / time.Second), Burst: r.Burst,
	}
}

// rateOf is the inverse of rateExpr; false: we never write it.
func rateOf(e *expr.Limit, over bool) (r model.Rate, ok bool) {
	unit, ok := units[e.Unit]
	if !ok || e.Over != over || e.Type != expr.LimitTypePkts || e.Rate == 0 || e.Rate > nft.MaxRate {
		return model.Rate{}, false
	}
	return model.Rate{Amount: uint32(e.Rate), Burst: e.Burst, Unit: unit}, true
}

// limitOf is the inverse of limitExpr. Of a limit that we never write it returns the zero
// Limit, which differs from all of ours.
func limitOf(e expr.Any) nft.Limit {
	var l nft.Limit
	switch e := e.(type) {
	case *expr.Connlimit:
		l.Connections = e.Count
		if e.Flags != expr.NFT_CONNLIMIT_F_INV {
			return nft.Limit{}
		}
	case *expr.Limit:
		l.Rate, _ = rateOf(e, true)
	}
	return l
}

var units = map[expr.LimitTime]model.RateUnit{
	expr.LimitTimeSecond: model.PerSecond, expr.LimitTimeMinute: model.PerMinute, expr.LimitTimeHour: model.PerHour,
}

// appendLimit appends the limit of a set or of an element.
func appendLimit(a *Attributes, typ uint16, l nft.Limit) {
	data, err := expr.Marshal(unix.NFPROTO_UNSPEC, limitExpr(l))
	if err != nil {
		panic(fmt.Sprintf("marshal %s: %v", l.Text(), err)) // it consists of numbers
	}
	end := a.Nest(typ)
	*a = append(*a, data...)
	end()
}

// decodeLimit returns the value of an element with a limit of a type.
func decodeLimit(a netlinkio.Attributes, t nft.LimitType) (v nft.Value) {
	var name string
	for a.Next() {
		switch a.Type {
		case unix.NFTA_EXPR_NAME:
			name = string(a.Text())
		case unix.NFTA_EXPR_DATA:
			if name != limitExpressions[t] {
				continue
			}
			var e expr.Any = &expr.Limit{}
			if t == nft.ConnectionLimits {
				e = &expr.Connlimit{}
			}
			// A copy, because otherwise the compiler lets what a refers to escape to the
			// heap, for every element of every set.
			if unmarshal(unix.NFPROTO_UNSPEC, slices.Clone(a.Data), e) == nil {
				v = nft.LimitValue(limitOf(e))
			}
		}
	}
	return v
}

// overLimit returns the bytecode of a statement.
//
//	[ dynset update reg_key 1 set clients timeout 5000ms expr [ limit rate 10/second burst 5 type packets flags 0x1 ] ]
//	[ dynset add reg_key 1 set clients expr [ connlimit count 10 flags 1 ] ]
func overLimit(s nft.OverLimit, f model.Family) []expr.Any {
	e := &expr.Dynset{SrcRegKey: registerNumber(0), SetName: s.Set, Operation: unix.NFT_DYNSET_OP_ADD, Exprs: []expr.Any{limitExpr(s.Limit)}}
	if s.Limit.Rate.Amount > 0 {
		e.Operation, e.Timeout = unix.NFT_DYNSET_OP_UPDATE, s.Limit.Rate.Refill()
	}
	return append(loadKey(s.Key, f, 0), e)
}

// overLimit decodes [nft.OverLimit].
func (s *symbolic) overLimit(e *expr.Dynset) error {
	if len(e.Exprs) != 1 || e.SrcRegData != 0 || registerIndex(e.SrcRegKey) != 0 || e.Invert {
		return errForeign
	}
	l := limitOf(e.Exprs[0])
	operation, timeout := uint32(unix.NFT_DYNSET_OP_ADD), time.Duration(0)
	if l.Rate.Amount > 0 {
		operation, timeout = unix.NFT_DYNSET_OP_UPDATE, l.Rate.Refill()
	}
	key := s.loadedKey(0, allRegisters)
	if l == (nft.Limit{}) || e.Operation != operation || e.Timeout != timeout || len(key) == 0 {
		return errForeign
	}
	s.emit(nft.OverLimit{Set: e.SetName, Key: key, Limit: l})
	return nil
}
