package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// scheduler sets the one that is nearest to one of IPVS (docs/schedulers.md).
func (b *Balance) scheduler(line int, text, name string, flags []string) {
	switch name {
	case "", "rr", "wrr":
	case "sh", "dh":
		b.Scheduler = "source-hash"
	case "mh":
		b.Scheduler = "maglev"
	default:
		b.note(line, text, "%s has no equivalent: round robin is used, in proportion to weights", name)
		return
	}
	if name == "mh" && slices.ContainsFunc(flags, func(f string) bool { return strings.Contains(f, "mh-port") }) {
		b.Scheduler = "maglev-port"
	}
}

// method sets what servers see, for a way of IPVS to forward packets.
func (b *Balance) method(line int, text, name string) {
	switch strings.ToUpper(name) {
	case "NAT":
		b.ClientAddresses = "keep"
	case "DR", "TUN":
		b.note(line, text, "answers return through this machine: the servers no longer need the address themselves")
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
		o, err := options(&s)
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
			v.server(&s, o)
		}
	}
	for _, v := range order {
		v.weights(v.of)
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

// options reads a line.
func options(s *statement) (o ipvsOptions, err error) {
	o.values = make(map[string]string)
	for i := 0; i < len(s.words); i++ {
		word := s.words[i]
		if short := longOptions[word]; short != "" {
			word = short
		}
		value := ""
		if next := s.word(i + 1); next != "" && !strings.HasPrefix(next, "-") {
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
		host, port := splitAddress(address)
		v.Listen = []string{join(host, portOf(port))}
	}
	if o.protocol != "" {
		v.Protocol = []string{o.protocol}
	}
	v.scheduler(s.line, s.text, o.values["-s"], strings.Split(o.values["-b"], ","))
	if timeout, given := o.values["-p"]; given {
		n, err := strconv.Atoi(timeout)
		if err != nil {
			n = 300 // the default of ipvsadm
		}
		v.affinity(time.Duration(n) * time.Second)
	}
	if mask, given := o.values["-M"]; given && mask != "255.255.255.255" && mask != "128" {
		v.note(s.line, s.text, "affinity goes by the address of the client, not by a mask")
	}
	return v
}

// server adds that of a line.
func (v *ipvs) server(s *statement, o ipvsOptions) {
	host, port := splitAddress(o.values["-r"])
	v.Backends = append(v.Backends, balance.Backend{Address: join(host, serverPort(port))})
	weight := 1
	if w, given := o.values["-w"]; given {
		weight, _ = strconv.Atoi(w)
	}
	v.of = append(v.of, weight)
	if _, nat := o.values["-m"]; nat {
		v.nat = true
	} else if len(v.Backends) == 1 {
		v.method(s.line, s.text, "DR")
	}
	if n := o.values["-x"]; n != "" && n != "0" {
		v.note(s.line, s.text, "limits belong to addresses of listen, not to servers")
	}
}
