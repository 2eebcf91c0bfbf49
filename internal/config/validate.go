package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/utils/net"

	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/model"
)

// check returns the problems of settings that the rules do not depend on.
func (c *Config) check() []error {
	k := &c.Kube
	problems := []error{
		c.checkServer("healthzBindAddress", k.HealthzBindAddress),
		c.checkServer("metricsBindAddress", k.MetricsBindAddress),
		c.checkRange("oomScoreAdj", *k.OOMScoreAdj, -1000, 1000),
		c.checkRange("nftables.masqueradeBit", *k.NFTables.MasqueradeBit, 0, 31),
		c.checkRange("iptables.masqueradeBit", *k.IPTables.MasqueradeBit, 0, 31),
		notNegative(c, "clientConnection.burst", k.ClientConnection.Burst),
		notNegative(c, "conntrack.maxPerCore", *k.Conntrack.MaxPerCore),
		notNegative(c, "conntrack.min", *k.Conntrack.Min),
		notNegative(c, "conntrack.tcpEstablishedTimeout", k.Conntrack.TCPEstablishedTimeout.Duration),
		notNegative(c, "conntrack.tcpCloseWaitTimeout", k.Conntrack.TCPCloseWaitTimeout.Duration),
		notNegative(c, "conntrack.udpTimeout", k.Conntrack.UDPTimeout.Duration),
		notNegative(c, "conntrack.udpStreamTimeout", k.Conntrack.UDPStreamTimeout.Duration),
		c.checkPositive("configSyncPeriod", k.ConfigSyncPeriod.Duration),
		c.checkPositive("nftables.syncPeriod", c.SyncPeriod()),
		c.checkMinSyncPeriod(),
	}
	if f := k.Logging.Format; f != "text" && f != "json" {
		problems = append(problems, c.fieldProblem("logging.format", "unknown format %q: use text or json", f))
	}
	if k.Mode != modeNFTables { // the others have been replaced
		problems = append(problems, c.fieldProblem("mode", "unknown mode %q: use nftables, or nothing", k.Mode))
	}
	return append(problems, c.checkOwn()...)
}

// checkOwn returns the problems of settings that only have flags.
func (c *Config) checkOwn() (problems []error) {
	o := &c.Own
	// A name that no request can have would lock its users out without a word.
	host := slices.IndexFunc(o.AllowedHosts, func(name string) bool { return !hostName.MatchString(strings.TrimPrefix(name, "*.")) })
	server := slices.IndexFunc(o.DNSServers, func(text string) bool { _, ok := nameServer(text); return !ok })
	logs := slices.Contains([]string{LogRefused, LogFailed, LogAll}, o.LogConnections)
	for _, check := range []struct {
		flag    string
		wrong   bool
		problem string
		value   any
	}{
		{KubeContext, c.Context != "" && c.Kube.ClientConnection.Kubeconfig == "", "%q is looked up in a kubeconfig: name the file with --kubeconfig", c.Context},
		{"start-jitter", o.StartJitter < 0, "%v is negative", o.StartJitter},
		{"affinity-size", o.AffinitySize == 0, "%d clients cannot be remembered: use 1 or more", o.AffinitySize},
		{"allowed-hosts", host >= 0, "%q is not a host name such as node-1.example.com or *.example.com (no port, no scheme)", at(o.AllowedHosts, host)},
		{"log-connections", !logs && o.LogConnections != logOff, "unknown value %q: use off, refused, failed or all", o.LogConnections},
		{"log-connections", logs && o.Observe == model.ObserveOff.String(), "%s connections are known with --observe only", o.LogConnections}, // (17.9)
		{"dns-servers", server >= 0, "%q is not an IP address, or one with a port such as 192.0.2.53:53 or [2001:db8::53]:53", at(o.DNSServers, server)},
		{"dns-timeout", o.DNSTimeout < 10*time.Millisecond || o.DNSTimeout > time.Minute, "%v is out of range: use 10ms to 1m", o.DNSTimeout},
		{"dns-min-ttl", o.DNSMinTTL < time.Second, "%v is too short: use 1s or more", o.DNSMinTTL},
		{"dns-max-ttl", o.DNSMaxTTL < o.DNSMinTTL, "%v is less than --dns-min-ttl, " + o.DNSMinTTL.String(), o.DNSMaxTTL},
		{"announce-interval", o.AnnounceInterval < minAnnounceInterval || o.AnnounceInterval > time.Hour, "%v is out of range: use " + minAnnounceInterval.String() + " to 1h", o.AnnounceInterval},
	} {
		if check.wrong {
			problems = append(problems, ownProblem(check.flag, fmt.Errorf(check.problem, check.value)))
		}
	}
	return problems
}

// at returns an entry of a list, or nothing for an index of -1.
func at(list []string, i int) string {
	if i < 0 {
		return ""
	}
	return list[i]
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)

// checkServer accepts an address with a port. Port 0 stands for no server.
func (c *Config) checkServer(field, address string) error {
	host, port, err := net.SplitHostPort(address)
	_, ok := parseHost(host)
	if err == nil && ok {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || !ok {
		return c.fieldProblem(field, "%q is not an IP address, or one with a port such as 0.0.0.0:10256 or [::]:10256", address)
	}
	return nil
}

// parseHost reads the address of a server. IPv4 numbers with leading zeros are decimal (1.33).
func parseHost(text string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a, true // may have a zone
	}
	a, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(text))
	return a.Unmap(), ok
}

func (c *Config) checkMinSyncPeriod() error {
	const field = "nftables.minSyncPeriod"
	least, most := c.MinSyncPeriod(), c.SyncPeriod()
	if err := notNegative(c, field, least); err != nil || least <= most {
		return err
	}
	return c.fieldProblem(field, "%v is more than the %v of nftables.syncPeriod: use at most that", least, most)
}

func (c *Config) checkRange(field string, value, least, most int32) error {
	if value < least || value > most {
		return c.fieldProblem(field, "%d is out of range: use %d to %d", value, least, most)
	}
	return nil
}

func notNegative[T int32 | time.Duration](c *Config, field string, value T) error {
	if value < 0 {
		return c.fieldProblem(field, "%v is negative: use 0 or more", value)
	}
	return nil
}

func (c *Config) checkPositive(field string, value time.Duration) error {
	if value <= 0 {
		return c.fieldProblem(field, "%v is not a period: use more than 0", value)
	}
	return nil
}

// ownProblem returns an error about a setting that only has a flag, or nil without one.
func ownProblem(flag string, err error) error {
	if err != nil {
		err = fmt.Errorf("--%s: %w", flag, err)
	}
	return err
}

const dnsPort = 53

func (f *Flags) addDNS() {
	f.add(declare.Names, &f.own.DNSServers, "dns-servers", "`addresses` of the DNS servers for names of servers in files, in this order, each with or without a port (default: those of /etc/resolv.conf, which is followed)")
	f.add(declare.Names, &f.own.DNSTimeout, "dns-timeout", "`time` in which a DNS server has to answer before the next one is asked")
	f.add(declare.Names, &f.own.DNSMinTTL, "dns-min-ttl", "shortest `time` after which a name of servers is looked up again, for records with a lower TTL")
	f.add(declare.Names, &f.own.DNSMaxTTL, "dns-max-ttl", "longest `time` after which a name of servers is looked up again, for records with a higher TTL")
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
