package codec

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

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
