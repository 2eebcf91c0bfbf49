package apply

import (
	"errors"
	"fmt"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"golang.org/x/sys/unix"
)

// AffinityUse tells how full the affinity map of a family is. When it is full,
// new clients are served but not remembered.
type AffinityUse struct {
	Family model.Family
	Used   int // clients, with those whose time is over but which are not yet removed
	Size   int // most clients
}

// AffinityUse returns the use of the affinity maps that exist. From kernel 6.16
// on the kernel keeps count; before, the elements are counted here.
func (c *Conn) AffinityUse() ([]AffinityUse, error) {
	var out []AffinityUse
	for _, f := range model.Families {
		use, err := persist(func() (AffinityUse, error) { return c.affinityUse(f) })
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read affinity map of %s: %w", f, err)
		}
		out = append(out, use)
	}
	return out, nil
}

func (c *Conn) affinityUse(f model.Family) (AffinityUse, error) {
	s, count, err := c.set(render.AffinityMap, f)
	if err != nil {
		return AffinityUse{}, err
	}
	if count == unknownCount {
		if err := c.dumpElements(s, count, f); err != nil {
			return AffinityUse{}, err
		}
		count = len(s.Elements)
	}
	return AffinityUse{f, count, int(s.Size)}, nil
}

// Bindings implements [Kernel].
func (c *Conn) Bindings(f model.Family) ([]render.Element, error) {
	elements, err := persist(func() ([]render.Element, error) {
		s, count, err := c.set(render.AffinityMap, f)
		if err != nil {
			return nil, err
		}
		err = c.dumpElements(s, count, f)
		return s.Elements, err
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read affinity map of %s: %w", f, err)
	}
	return elements, nil
}
