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
func (b *Balance) setScheduler(line int, text, name string, flags []string) {
	switch name {
	case "", "rr", "wrr":
	case "sh", "dh":
		b.Scheduler = "source-hash"
	case "mh":
		b.Scheduler = "maglev"
	case "lc", "wlc", "lblc", "lblcr", "sed", "nq", "fo", "ovf", "twos":
		b.noteChange(line, text, "%s has no equivalent: round robin is used, in proportion to weights", name)
		return
	default:
		b.refuseBalance(fmt.Sprintf("line %d: %s is no scheduler of IPVS", line, name))
	}
	for _, flag := range flags {
		if flag != "" && !slices.Contains(schedulerFlags, flag) {
			b.refuseBalance(fmt.Sprintf("line %d: no equivalent of %s", line, flag))
		} else if flag == "sh-port" {
			b.noteChange(line, text, "the hash is that of the address of the client")
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

// setForwarding sets what servers see, for a way of IPVS to forward packets.
func (b *Balance) setForwarding(line int, text, name string) {
	switch strings.ToUpper(name) {
	case "NAT":
		b.ClientAddresses = "keep"
	case "DR", "TUN":
		b.noteChange(line, text, "answers return through this machine, and servers see its address in place of the client's, in logs and lists, too: clientAddresses: keep shows them the client if their default route is this machine")
	default:
		b.refuseBalance(fmt.Sprintf("line %d: %s is no way to forward that IPVS has", line, name))
	}
}

// readIPVS reads what ipvsadm -S -n prints.
func readIPVS(text string) (*Config, error) {
	c := new(Config)
	services := make(map[string]*ipvs)
	var order []*ipvs
	n := 0
	for line := range strings.Lines(text) {
		n++
		s := statement{line: n, text: strings.TrimSpace(line), words: strings.Fields(line)}
		if len(s.words) == 0 || strings.HasPrefix(s.words[0], "#") {
			continue
		}
		o, err := readOptions(&s)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch v := services[o.service]; {
		case o.add && v != nil:
			return nil, fmt.Errorf("line %d: %s is added a second time", n, o.service)
		case o.add:
			services[o.service] = newIPVS(&s, o)
			order = append(order, services[o.service])
		case v == nil:
			return nil, fmt.Errorf("line %d: no line before adds %s", n, o.service)
		default:
			v.addServer(&s, o)
		}
	}
	for _, v := range order {
		v.setWeights(v.of)
		if v.nat && v.direct {
			v.refuseBalance("some servers have -m and others do not: a Balance shows all of them the client's address, or none")
		}
		if v.nat {
			v.ClientAddresses = "keep"
		}
		if len(v.Backends) == 0 && v.Problem == "" {
			v.Problem = "it has no server"
		}
		c.Balances = append(c.Balances, v.Balance)
	}
	return c, nil
}

// ipvs is a virtual service.
type ipvs struct {
	*Balance
	of  []int // weights
	nat bool
	// direct: a server answers clients itself.
	direct bool
}

// ipvsOptions are the options of a line.
type ipvsOptions struct {
	add               bool // a service, not a server
	service, protocol string
	values            map[string]string
}

// longOptions are the names of options with one letter.
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

// refuseUnknown refuses a service because of an option that nothing reads.
func (v *ipvs) refuseUnknown(s *statement, o ipvsOptions) {
	for _, option := range slices.Sorted(maps.Keys(o.values)) {
		value := o.values[option]
		switch {
		case option == "-o" || option == "--ops":
			v.refuseBalance(fmt.Sprintf("line %d: %s: %s", s.line, option, onePacket))
		case !slices.Contains(knownOptions[o.add], option):
			v.refuseBalance(fmt.Sprintf("line %d: no equivalent of %s", s.line, option))
		case value == "" && slices.Contains([]string{"-s", "-w", "-b", "-M", "-x", "-y", "-r"}, option):
			v.refuseBalance(fmt.Sprintf("line %d: %s has no value", s.line, option))
		case value != "" && slices.Contains([]string{"-A", "-a", "-g", "-i", "-m"}, option):
			v.refuseBalance(fmt.Sprintf("line %d: %s: not known in this place", s.line, value))
		}
	}
}

// readNumber reads the value of an option.
func (v *ipvs) readNumber(s *statement, o ipvsOptions, option string, standard int) int {
	value := o.values[option]
	if value == "" {
		return standard
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 0 {
		v.refuseBalance(fmt.Sprintf("line %d: %s %s is no number", s.line, option, value))
	}
	return int(max(n, 0))
}

// readEndpoint returns an address with a port, which have to be numbers.
func (v *ipvs) readEndpoint(s *statement, text string, portOf func(string) string) string {
	host, port := splitAddress(text)
	_, err := netip.ParseAddr(host)
	if n, bad := strconv.ParseUint(cmp.Or(port, "0"), 10, 16); err != nil || bad != nil || n > 65535 {
		v.refuseBalance(fmt.Sprintf("line %d: %s is no address and port in numbers: print them with ipvsadm -S -n", s.line, text))
	}
	return join(host, portOf(port))
}

// readOptions reads a line.
func readOptions(s *statement) (o ipvsOptions, err error) {
	o.values = make(map[string]string)
	for i := 0; i < len(s.words); i++ {
		word := s.words[i]
		if short := longOptions[word]; short != "" {
			word = short
		}
		value := ""
		if next := s.readWord(i + 1); next != "" && !strings.HasPrefix(next, "-") {
			value = next
			i++
		}
		switch word {
		case "-A":
			o.add = true
		case "-t", "-u", "--sctp-service", "-f":
			o.service, o.protocol = word+" "+value, map[string]string{"-u": "udp", "--sctp-service": "sctp"}[word]
		}
		o.values[word] = value
	}
	if o.service == "" {
		return o, fmt.Errorf("%q is no line of ipvsadm -S -n", s.text)
	}
	return o, nil
}

func newIPVS(s *statement, o ipvsOptions) *ipvs {
	v := &ipvs{Balance: &Balance{Origin: fmt.Sprintf("%s, line %d", o.service, s.line)}}
	v.Kind = balance.Kind
	kind, address, _ := strings.Cut(o.service, " ")
	v.Name = nameOf("vip-" + address)
	if kind == "-f" {
		v.Name, v.Problem = nameOf("mark-"+address), "it goes by a mark of the firewall: listen names addresses and ports"
	} else {
		v.Listen = []string{v.readEndpoint(s, address, portOf)}
	}
	if o.protocol != "" {
		v.Protocol = []string{o.protocol}
	}
	v.setScheduler(s.line, s.text, o.values["-s"], strings.Split(o.values["-b"], ","))
	v.refuseUnknown(s, o)
	if _, given := o.values["-p"]; given {
		v.setAffinity(s, time.Duration(v.readNumber(s, o, "-p", 300))*time.Second) // the default of ipvsadm
	}
	if mask, given := o.values["-M"]; given && mask != "255.255.255.255" && mask != "128" {
		v.noteChange(s.line, s.text, "affinity goes by the address of the client, not by a mask")
	}
	return v
}

// addServer adds that of a line.
func (v *ipvs) addServer(s *statement, o ipvsOptions) {
	v.refuseUnknown(s, o)
	if _, given := o.values["-a"]; !given {
		v.refuseBalance(fmt.Sprintf("line %d: it adds nothing", s.line))
	}
	v.Backends = append(v.Backends, balance.Backend{Address: v.readEndpoint(s, o.values["-r"], serverPort)})
	v.of = append(v.of, v.readNumber(s, o, "-w", 1))
	if _, nat := o.values["-m"]; nat {
		v.nat = true
	} else if !v.direct {
		v.direct = true
		v.setForwarding(s.line, s.text, "DR")
	}
	for _, option := range []string{"-x", "-y"} {
		if v.readNumber(s, o, option, 0) != 0 {
			v.noteChange(s.line, s.text, "limits belong to addresses of listen, not to servers: no equivalent of %s", option)
		}
	}
}
