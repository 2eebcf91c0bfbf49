package config

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
)

const dnsPort = 53

func (f *Flags) addDNS() {
	f.in(declare.Names, func() {
		f.set.StringSliceVar(&f.own.DNSServers, "dns-servers", nil, "`addresses` of the DNS servers for names of servers in files, in this order, each with or without a port (default: those of /etc/resolv.conf, which is followed)")
		f.addPeriod(&f.own.DNSTimeout, "dns-timeout", "`time` in which a DNS server has to answer before the next one is asked")
		f.addPeriod(&f.own.DNSMinTTL, "dns-min-ttl", "shortest `time` after which a name of servers is looked up again, for records with a lower TTL")
		f.addPeriod(&f.own.DNSMaxTTL, "dns-max-ttl", "longest `time` after which a name of servers is looked up again, for records with a higher TTL")
	})
}

// NameServers returns the DNS servers; none: those of /etc/resolv.conf.
func (o *Own) NameServers() (out []netip.AddrPort) {
	for _, text := range o.DNSServers {
		if s, ok := nameServer(text); ok {
			out = append(out, s)
		}
	}
	return out
}

func nameServer(text string) (netip.AddrPort, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, dnsPort), true
	}
	s, err := netip.ParseAddrPort(text)
	return s, err == nil && s.Port() != 0
}
