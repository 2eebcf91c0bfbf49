package codec

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// countRefused returns the bytecode of a statement. Several expressions in an element need
// kernel 5.11.
//
//	[ dynset update reg_key 1 set refused-denied expr [ counter pkts 0 bytes 0 ] expr [ limit rate 10/second burst 10 type packets flags 0x0 ] ]
func countRefused(s nft.CountRefused, f model.Family) []expr.Any {
	return append(loadKey(s.Key, f, 0), &expr.Dynset{
		SrcRegKey: registerNumber(0), SetName: s.Set, Operation: unix.NFT_DYNSET_OP_UPDATE,
		Exprs: []expr.Any{&expr.Counter{}, rateExpr(s.Rate, false)},
	})
}

// countRefused decodes [nft.CountRefused].
func (s *symbolic) countRefused(e *expr.Dynset) error {
	_, counts := e.Exprs[0].(*expr.Counter)
	limit, limits := e.Exprs[1].(*expr.Limit)
	key := s.loadedKey(0, allRegisters)
	if !counts || !limits || len(key) == 0 || e.SrcRegData != 0 || registerIndex(e.SrcRegKey) != 0 || e.Invert ||
		e.Operation != unix.NFT_DYNSET_OP_UPDATE || e.Timeout != 0 {
		return errForeign
	}
	rate, ok := rateOf(limit, false)
	if !ok {
		return errForeign
	}
	s.emit(nft.CountRefused{Set: e.SetName, Key: key, Rate: rate})
	return nil
}

// decodeWithin decodes [nft.Within].
func (s *symbolic) decodeWithin(e *expr.Limit) error {
	rate, ok := rateOf(e, false)
	if !ok || len(s.registers) > 0 {
		return errForeign
	}
	s.emit(nft.Within{Rate: rate})
	return nil
}

// logged is what a statement says about the packets that are logged.
const logged = 1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_PREFIX | 1<<unix.NFTA_LOG_SNAPLEN

// log returns the bytecode of a statement.
//
//	[ log prefix denied group 28272 snaplen 96 qthreshold 0 ]
func log(s nft.Log) *expr.Log {
	return &expr.Log{Key: logged, Data: []byte(s.Prefix), Group: s.Group, Snaplen: s.Snaplen}
}

// log decodes [nft.Log]. The library would panic on an empty prefix.
func (s *symbolic) log(data []byte) (err error) {
	var l nft.Log
	var key uint32
	a := netlinkio.Read(data, &err)
	for a.Next() {
		key |= 1 << a.Type
		switch a.Type {
		case unix.NFTA_LOG_GROUP:
			l.Group = a.Uint16()
		case unix.NFTA_LOG_PREFIX:
			l.Prefix = string(a.Text())
		case unix.NFTA_LOG_SNAPLEN:
			l.Snaplen = a.Uint32()
		}
	}
	switch {
	case err != nil:
		return err
	case key != logged || len(s.registers) > 0:
		return errForeign
	}
	s.emit(l)
	return nil
}
