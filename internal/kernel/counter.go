package kernel

import (
	"encoding/binary"
	"errors"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

const (
	// setExpression is NFTA_SET_EXPR: what every element of a set gets a copy
	// of and evaluates when a packet finds it. Several would be in
	// NFTA_SET_EXPRESSIONS and need a flag of the set.
	setExpression     = 17
	counterExpression = "counter"
)

// appendCounter gives every element of a set a counter. An element that is
// added needs no more: the kernel copies it.
func appendCounter(a *attributes) {
	end := a.nest(setExpression)
	a.string(unix.NFTA_EXPR_NAME, counterExpression)
	a.nest(unix.NFTA_EXPR_DATA)()
	end()
}

func expressionName(a netlinkio.Attributes) (name string) {
	for a.Next() {
		if a.Type == unix.NFTA_EXPR_NAME {
			name = string(a.Text())
		}
	}
	return name
}

// decodeCounter reads the counter of an element.
func (e *element) decodeCounter(a netlinkio.Attributes) {
	for a.Next() {
		if a.Type != unix.NFTA_EXPR_DATA {
			continue
		}
		counter := a.Nested()
		for counter.Next() {
			if counter.Type == unix.NFTA_COUNTER_PACKETS && len(counter.Data) == 8 {
				e.packets = binary.BigEndian.Uint64(counter.Data)
			}
		}
	}
}

// FrontendCount is what one element of a map of frontends has counted: new
// connections, with those that were refused or dropped. A client that gets no
// answer tries again, and is counted again.
type FrontendCount struct {
	Frontend model.Frontend
	// Outside tells that these are clients outside of the cluster, for which
	// another verdict holds; the others are counted apart.
	Outside bool
	// Connections starts at 0 when the element is added, and so again when its
	// verdict is replaced.
	Connections uint64
}

// FrontendCounts returns the counters of all frontends, in no order; none where
// nothing is counted.
func (c *Conn) FrontendCounts() ([]FrontendCount, error) {
	counts, _, err := consistent(c, "counters", c.frontendCounts, func([]FrontendCount) bool { return false })
	return counts, err
}

func (c *Conn) frontendCounts() ([]FrontendCount, error) {
	var out []FrontendCount
	for _, f := range model.Families {
		for _, name := range []string{nft.ServicesMap, nft.LocalServicesMap} {
			counts, err := c.countsOf(name, f)
			if err != nil {
				return nil, err
			}
			out = append(out, counts...)
		}
	}
	return out, nil
}

// countsOf returns the counters of one map, none if it is not there.
func (c *Conn) countsOf(name string, f model.Family) ([]FrontendCount, error) {
	s, count, err := c.Set(name, f)
	if errors.Is(err, unix.ENOENT) || err == nil && !s.Counters {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seen := make(map[model.Frontend]bool, room(count))
	out := make([]FrontendCount, 0, room(count))
	err = c.eachElement(s, f, func(e *element) error {
		frontend := e.Key.Frontend()
		seen[frontend] = true
		out = append(out, FrontendCount{frontend, name == nft.LocalServicesMap, e.packets})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(seen) != len(out) || count != unknownCount && count != len(out) {
		return nil, errInconsistent
	}
	return out, nil
}
