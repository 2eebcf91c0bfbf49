package netlab

import (
	"fmt"

	"github.com/google/nftables"
)

// Generation returns a number that every nftables transaction in the namespace
// increments, whether it changes something or not.
func (n *Namespace) Generation() (uint32, error) {
	var gen *nftables.Gen
	err := n.Do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		gen, err = conn.GetGen()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read nftables generation: %w", err)
	}
	return gen.ID, nil
}
