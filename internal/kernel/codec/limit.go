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

func appendLimit(a *Attributes, typ uint16, l nft.Limit) {
	data, err := expr.Marshal(unix.NFPROTO_UNSPEC, limitExpr(l))
	if err != nil {
		panic(fmt.Sprintf("marshal %s: %v", l.Text(), err)) // it consists of numbers
	}
	end := a.Nest(typ)
	*a = append(*a, data...)
	end()
}

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
