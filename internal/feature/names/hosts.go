package names

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/hostsfile"
)

// explained returns the error of a lookup with why other programs of this machine find the name.
func (e *Engine) explained(name string, err error) error {
	a, found := hostsfile.Read(e.HostsFile)[strings.ToLower(strings.TrimSuffix(name, "."))]
	if !found {
		return err
	}
	return fmt.Errorf("%w; the hosts file has it, with %s, and is not read: write the address in place of the name", err, a)
}
