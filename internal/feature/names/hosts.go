package names

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
)

// HostsFile has names that programs of this machine resolve without DNS (hosts(5)). An engine does
// not use them.
const HostsFile = "/etc/hosts"

// ReadHosts returns the first address of each name of a hosts file; none if there is no such file.
func ReadHosts(name string) map[string]netip.Addr {
	text, err := atomicfile.Read(name)
	if err != nil {
		return nil // all names are left to DNS then
	}
	out := make(map[string]netip.Addr)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		a, err := netip.ParseAddr(words[0])
		for _, host := range words[1:] {
			if host = strings.ToLower(host); err == nil && !out[host].IsValid() {
				out[host] = a
			}
		}
	}
	return out
}

// explained returns the error of a lookup with why other programs of this machine find the name.
func (e *Engine) explained(name string, err error) error {
	a, found := ReadHosts(e.HostsFile)[strings.ToLower(strings.TrimSuffix(name, "."))]
	if !found {
		return err
	}
	return fmt.Errorf("%w; the hosts file has it, with %s, and is not read: write the address in place of the name", err, a)
}
