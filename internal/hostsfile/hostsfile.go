// Package hostsfile reads the names that programs of a machine resolve without DNS (hosts(5)).
package hostsfile

import (
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
)

const Path = "/etc/hosts"

// Read returns the first address of each name of a hosts file; none if there is no such file.
func Read(name string) map[string]netip.Addr {
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
