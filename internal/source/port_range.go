package source

import (
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// allPorts is the word for all ports of an address.
const allPorts = "all"

// portRange is a range of ports; zero: none is given.
type portRange struct{ first, last uint16 }

// everyPort is the range of the word [allPorts].
var everyPort = portRange{1, model.AllPorts}

func (r portRange) count() int { return int(r.last) - int(r.first) + 1 }

// parsePorts reads a port, or a range such as 5000-5099.
func parsePorts(text string) (r portRange, problem string) {
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
	if r = (portRange{numbers[0], numbers[1]}); r.last < r.first {
		return r, "is not a range of ports: the lowest one comes first"
	}
	return r, ""
}

func parseProtocol(word string) (model.Protocol, string) {
	p, err := model.ParseProtocol(word)
	if err == nil {
		return p, ""
	}
	problem := "is not a protocol: " + oneOf("tcp", "udp", "sctp")
	if similar := suggest.Similar(strings.ToLower(word), []string{"tcp", "udp", "sctp"}); len(similar) > 0 {
		problem = "is not a protocol" + suggest.DidYouMean(similar[:1])
	}
	return 0, problem
}

func newPortRange(p model.Protocol, ports portRange, target uint16) model.PortRange {
	r := model.PortRange{ServicePort: model.ServicePort{Protocol: p, Port: ports.first}, Target: target}
	if ports.last != ports.first {
		r.Last = ports.last
	}
	r.Name = r.String()
	return r
}
