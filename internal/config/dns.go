package config

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
)

// Defaults of the settings for names of servers.
const (
	dnsTimeout = 2 * time.Second
	dnsMinTTL  = time.Second
	dnsMaxTTL  = time.Hour
)

// Names of flags.
const (
	dnsServersFlag = "dns-servers"
	dnsTimeoutFlag = "dns-timeout"
	dnsMinTTLFlag  = "dns-min-ttl"
	dnsMaxTTLFlag  = "dns-max-ttl"
)

// dnsPort is the port of DNS.
const dnsPort = 53

func (f *Flags) addDNS() {
	f.in(declare.Names, func() {
		f.set.StringSliceVar(&f.own.DNSServers, dnsServersFlag, nil, "`addresses` of the DNS servers for names of servers in files, in this order, each with or without a port (default: those of /etc/resolv.conf, which is followed)")
		f.addPeriod(&f.own.DNSTimeout, dnsTimeoutFlag, "`time` in which a DNS server has to answer before the next one is asked")
		f.addPeriod(&f.own.DNSMinTTL, dnsMinTTLFlag, "shortest `time` after which a name of servers is looked up again, for records with a lower TTL")
		f.addPeriod(&f.own.DNSMaxTTL, dnsMaxTTLFlag, "longest `time` after which a name of servers is looked up again, for records with a higher TTL")
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

// checkDNS accepts settings with which each name is looked up now and then.
func (c *Config) checkDNS() error {
	o := &c.Own
	for _, text := range o.DNSServers {
		if _, ok := nameServer(text); !ok {
			return ownProblem(dnsServersFlag, fmt.Errorf("%q is not an IP address, or one with a port such as 192.0.2.53:53 or [2001:db8::53]:53", text))
		}
	}
	switch {
	case o.DNSTimeout < 10*time.Millisecond || o.DNSTimeout > time.Minute:
		return ownProblem(dnsTimeoutFlag, fmt.Errorf("%v is out of range: use 10ms to 1m", o.DNSTimeout))
	case o.DNSMinTTL < time.Second:
		return ownProblem(dnsMinTTLFlag, fmt.Errorf("%v is too short: use 1s or more", o.DNSMinTTL))
	case o.DNSMaxTTL < o.DNSMinTTL:
		return ownProblem(dnsMaxTTLFlag, fmt.Errorf("%v is less than --%s, %v", o.DNSMaxTTL, dnsMinTTLFlag, o.DNSMinTTL))
	}
	return nil
}
