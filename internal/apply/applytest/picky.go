// Package applytest has kernels for tests of those who apply rules.
package applytest

import (
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/apply"
)

// Picky is the kernel, to which some elements are told with comments that it
// does not take.
type Picky struct {
	*apply.Conn
	Comments string // of those elements: what they begin with
}

// Commit implements [apply.Kernel].
func (k Picky) Commit(p *apply.Plan, generation uint32) (apply.Size, error) {
	return k.Conn.Commit(k.spoil(p), generation)
}

// Check implements [apply.Kernel].
func (k Picky) Check(p *apply.Plan, generation uint32) error {
	return k.Conn.Check(k.spoil(p), generation)
}

func (k Picky) spoil(p *apply.Plan) *apply.Plan {
	out := *p
	out.Changes = slices.Clone(p.Changes)
	for i, c := range p.Changes {
		if c.New != nil && strings.HasPrefix(c.New.Comment, k.Comments) {
			e := *c.New
			e.Comment = strings.Repeat("x", 300)
			out.Changes[i].New = &e
		}
	}
	return &out
}
