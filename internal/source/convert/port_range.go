package convert

import (
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// AllPorts is the word for all ports of an address.
const AllPorts = "all"

// PortRange is a range of ports; zero: none is given.
type PortRange struct{ First, Last uint16 }

// EveryPort is the range of the word [AllPorts].
var EveryPort = PortRange{1, model.AllPorts}

// Count returns how many ports the range has.
func (r PortRange) Count() int { return int(r.Last) - int(r.First) + 1 }

// ParsePorts reads a port, or a range such as 5000-5099.
func ParsePorts(text string) (r PortRange, problem string) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	var numbers [2]uint16
	for i, digits := range []string{first, last} {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 {
			return r, "is not a port: use 1 to 65535, or a range such as 5000-5099"
		}
		if digits[0] == '0' {
			return r, "has leading zeros: write " + strconv.FormatUint(n, 10)
		}
		numbers[i] = uint16(n)
	}
	if r = (PortRange{numbers[0], numbers[1]}); r.Last < r.First {
		return r, "is not a range of ports: the lowest one comes first"
	}
	return r, ""
}

// ParseProtocol reads the name of a protocol, or returns the problem with it.
func ParseProtocol(word string) (model.Protocol, string) {
	p, err := model.ParseProtocol(word)
	if err == nil {
		return p, ""
	}
	problem := "is not a protocol: " + suggest.OneOf("tcp", "udp", "sctp")
	if similar := suggest.Similar(strings.ToLower(word), []string{"tcp", "udp", "sctp"}); len(similar) > 0 {
		problem = "is not a protocol" + suggest.DidYouMean(similar[:1])
	}
	return 0, problem
}

// NewPortRange returns a range of a Service, whose ports lead to target; zero: they are kept.
func NewPortRange(p model.Protocol, ports PortRange, target uint16) model.PortRange {
	r := model.PortRange{ServicePort: model.ServicePort{Protocol: p, Port: ports.First}, Target: target}
	if ports.Last != ports.First {
		r.Last = ports.Last
	}
	r.Name = r.String()
	return r
}
