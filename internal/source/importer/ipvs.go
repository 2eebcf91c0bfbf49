package importer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// setScheduler sets the one that is nearest to one of IPVS (docs/schedulers.md).
func (b *Balance) setScheduler(s *statement, name string, flags []string) {
	switch name {
	case "", "rr", "wrr":
	case "sh", "dh":
		b.Scheduler = "source-hash"
	case "mh":
		b.Scheduler = "maglev"
	case "lc", "wlc", "lblc", "lblcr", "sed", "nq", "fo", "ovf", "twos":
		b.noteChange(s, "%s has no equivalent: round robin is used, in proportion to weights", name)
		return
	default:
		b.refuse(s, "%s is no scheduler of IPVS", name)
	}
	for _, flag := range flags {
		if flag != "" && !slices.Contains(schedulerFlags, flag) {
			b.refuse(s, "no equivalent of %s", flag)
		} else if flag == "sh-port" {
			b.noteChange(s, "the hash is that of the address of the client")
		}
	}
	if name == "mh" && slices.ContainsFunc(flags, func(f string) bool { return strings.Contains(f, "mh-port") }) {
		b.Scheduler = "maglev-port"
	}
}

// schedulerFlags are those of sh and mh. Another server is always used for one that is down.
var schedulerFlags = []string{"sh-fallback", "sh-port", "mh-fallback", "mh-port"}

// onePacket is why a service that schedules each packet is refused.
const onePacket = "each packet of UDP would go to another server, and here all of a flow go to one"

func (b *Balance) setForwarding(s *statement, name string) {
	switch strings.ToUpper(name) {
	case "NAT":
		b.ClientAddresses = "keep"
	case "DR", "TUN":
		b.noteChange(s, "answers return through this machine, and servers see its address in place of the client's, in logs and lists, too: clientAddresses: keep shows them the client if their default route is this machine")
	default:
		b.refuse(s, "%s is no way to forward that IPVS has", name)
	}
}

func readIPVS(text string) (*Config, error) {
	c := new(Config)
	services := make(map[string]*ipvs)
	var order []*ipvs
	n := 0
	for line := range strings.Lines(text) {
		n++
		l := ipvsLine{statement: statement{line: n, text: strings.TrimSpace(line), words: strings.Fields(line)}}
		if len(l.words) == 0 || strings.HasPrefix(l.words[0], "#") {
			continue
		}
		if err := l.readOptions(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch v := services[l.service]; {
		case l.adds && v != nil:
			return nil, fmt.Errorf("line %d: %s is added a second time", n, l.service)
		case l.adds:
			services[l.service] = newIPVS(&l)
			order = append(order, services[l.service])
		case v == nil:
			return nil, fmt.Errorf("line %d: no line before adds %s", n, l.service)
		default:
			v.addServer(&l)
		}
	}
	for _, v := range order {
		v.setWeights(v.weights)
		if v.nat && v.direct {
			v.refuse(nil, "some servers have -m and others do not: a Balance shows all of them the client's address, or none")
		}
		if v.nat {
			v.ClientAddresses = "keep"
		}
		if len(v.Backends) == 0 {
			v.refuse(nil, "it has no server")
		}
		c.Balances = append(c.Balances, v.Balance)
	}
	return c, nil
}

type ipvs struct {
	*Balance
	weights []int
	nat     bool
	direct  bool // a server answers clients itself
}

type ipvsLine struct {
	statement
	adds              bool // a service, not a server
	service, protocol string
	places            map[string]int // of the values of options that are given; 0: it has none
}

func (l *ipvsLine) has(option string) bool {
	_, given := l.places[option]
	return given
}

// value returns the value of an option; empty: it has none, or is not given.
func (l *ipvsLine) value(option string) string {
	if i := l.places[option]; i > 0 {
		return l.words[i]
	}
	return ""
}

var longOptions = map[string]string{
	"--add-service": "-A", "--add-server": "-a", "--tcp-service": "-t", "--udp-service": "-u", "--fwmark-service": "-f", "--scheduler": "-s",
	"--persistent": "-p", "--netmask": "-M", "--sched-flags": "-b", "--real-server": "-r", "--gatewaying": "-g", "--ipip": "-i",
	"--masquerading": "-m", "--weight": "-w", "--u-threshold": "-x", "--l-threshold": "-y",
}

// knownOptions are those of lines with -A and with -a that are used or have a remark.
var knownOptions = map[bool][]string{
	true:  {"-A", "-t", "-u", "--sctp-service", "-f", "-s", "-p", "-M", "-b"},
	false: {"-a", "-t", "-u", "--sctp-service", "-f", "-r", "-g", "-i", "-m", "-w", "-x", "-y"},
}

func (v *ipvs) refuseUnknown(l *ipvsLine) {
	for _, option := range slices.Sorted(maps.Keys(l.places)) {
		value := l.value(option)
		switch {
		case option == "-o" || option == "--ops":
			v.refuse(&l.statement, "%s: %s", option, onePacket)
		case !slices.Contains(knownOptions[l.adds], option):
			v.refuse(&l.statement, "no equivalent of %s", option)
		case value == "" && slices.Contains([]string{"-s", "-w", "-b", "-M", "-x", "-y", "-r"}, option):
			v.refuse(&l.statement, "%s has no value", option)
		case value != "" && slices.Contains([]string{"-A", "-a", "-g", "-i", "-m"}, option):
			v.refuse(&l.statement, "%s: not known in this place", value)
		}
	}
}

func (v *ipvs) readNumber(l *ipvsLine, option string, standard int) int {
	if i := l.places[option]; i > 0 {
		return v.remarks.readNumber(&l.statement, i)
	}
	return standard
}

func (v *ipvs) readEndpoint(l *ipvsLine, text string, portOf func(string) string) string {
	host, port := splitAddress(text)
	_, err := netip.ParseAddr(host)
	if _, bad := strconv.ParseUint(cmp.Or(port, "0"), 10, 16); err != nil || bad != nil {
		v.refuse(&l.statement, "%s is no address and port in numbers: print them with ipvsadm -S -n", text)
	}
	return join(host, portOf(port))
}

func (l *ipvsLine) readOptions() error {
	l.places = make(map[string]int)
	for i := 0; i < len(l.words); i++ {
		option, at := cmp.Or(longOptions[l.words[i]], l.words[i]), 0
		if next := l.peekWord(i + 1); next != "" && !strings.HasPrefix(next, "-") {
			i++
			at = i
		}
		l.places[option] = at
		switch option {
		case "-A":
			l.adds = true
		case "-t", "-u", "--sctp-service", "-f":
			l.service, l.protocol = option+" "+l.value(option), map[string]string{"-u": "udp", "--sctp-service": "sctp"}[option]
		}
	}
	if l.service == "" {
		return fmt.Errorf("%q is no line of ipvsadm -S -n", l.text)
	}
	return nil
}

func newIPVS(l *ipvsLine) *ipvs {
	v := &ipvs{Balance: newBalance(l.service, l.line)}
	kind, address, _ := strings.Cut(l.service, " ")
	if kind == "-f" {
		v.setMark(address)
	} else {
		v.Name, v.Listen = nameOf("vip-"+address), []string{v.readEndpoint(l, address, portOf)}
	}
	if l.protocol != "" {
		v.Protocol = []string{l.protocol}
	}
	v.setScheduler(&l.statement, l.value("-s"), strings.Split(l.value("-b"), ","))
	v.refuseUnknown(l)
	if l.has("-p") {
		v.setAffinity(&l.statement, time.Duration(v.readNumber(l, "-p", 300))*time.Second) // the default of ipvsadm
	}
	if mask := l.value("-M"); mask != "" && mask != "255.255.255.255" && mask != "128" {
		v.noteChange(&l.statement, "affinity goes by the address of the client, not by a mask")
	}
	return v
}

func (v *ipvs) addServer(l *ipvsLine) {
	v.refuseUnknown(l)
	if !l.has("-a") {
		v.refuse(&l.statement, "it adds nothing")
	}
	v.Backends = append(v.Backends, balance.Backend{Address: v.readEndpoint(l, l.value("-r"), serverPort)})
	v.weights = append(v.weights, v.readNumber(l, "-w", 1))
	if l.has("-m") {
		v.nat = true
	} else if !v.direct {
		v.direct = true
		v.setForwarding(&l.statement, "DR")
	}
	for _, option := range []string{"-x", "-y"} {
		if v.readNumber(l, option, 0) != 0 {
			v.noteChange(&l.statement, "limits belong to addresses of listen, not to servers: no equivalent of %s", option)
		}
	}
}
