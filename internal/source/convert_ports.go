package source

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

// ports converts the ports of a Service. A port that cannot be served is left
// out; the others stay.
func (c *serviceConverter) ports() []model.ServicePort {
	out := make([]model.ServicePort, 0, len(c.spec.Ports))
	taken := newPortsTaken(len(c.spec.Ports))
	for i := range c.spec.Ports {
		before := len(c.findings)
		p := c.port(i)
		if len(c.findings) == before {
			c.uniquePort(i, p, taken)
		}
		if len(c.findings) == before {
			p.NodePort = c.nodePort(i, p.Protocol, taken)
			out = append(out, p)
			taken.add(p)
		}
	}
	return out
}

// portsTaken are the names and numbers of the ports before one, of which there
// may be tens of thousands. Numbers lead to the names of their ports.
type portsTaken struct {
	names            map[string]struct{}
	ports, nodePorts map[portNumber]string
}

type portNumber struct {
	protocol model.Protocol
	port     uint16
}

func newPortsTaken(n int) portsTaken {
	return portsTaken{make(map[string]struct{}, n), make(map[portNumber]string, n), make(map[portNumber]string)}
}

func (t portsTaken) add(p model.ServicePort) {
	t.names[p.Name] = struct{}{}
	t.ports[portNumber{p.Protocol, p.Port}] = p.Name
	if p.NodePort != 0 {
		t.nodePorts[portNumber{p.Protocol, p.NodePort}] = p.Name
	}
}

func (c *serviceConverter) port(i int) model.ServicePort {
	in := &c.spec.Ports[i]
	field := func(name string) string { return fmt.Sprintf("spec.ports[%d].%s", i, name) }
	protocol, problem := parseProtocol(in.Protocol)
	if problem != "" {
		c.add(field("protocol"), string(in.Protocol), problem)
	}
	if problem := portProblem(in.Port); problem != "" {
		c.add(field("port"), in.Port, problem)
	}
	if problem := portNameProblem(in.Name); problem != "" {
		c.add(field("name"), in.Name, problem)
	}
	if in.Name == "" && len(c.spec.Ports) > 1 {
		c.add(field("name"), nil, "missing: each port needs a name where there are several")
	}
	return model.ServicePort{Name: in.Name, Protocol: protocol, Port: uint16(in.Port)}
}

// uniquePort refuses a name, or a protocol and port, that an earlier port has.
func (c *serviceConverter) uniquePort(i int, p model.ServicePort, earlier portsTaken) {
	if _, taken := earlier.names[p.Name]; taken {
		c.add(fmt.Sprintf("spec.ports[%d].name", i), p.Name, "is also the name of an earlier port: use another one")
		return
	}
	if name, taken := earlier.ports[portNumber{p.Protocol, p.Port}]; taken {
		c.add(fmt.Sprintf("spec.ports[%d].port", i), p.Port, usedBy(name, p.Protocol))
	}
}

// nodePort returns the node port of a port, zero where it has none (1.21).
func (c *serviceConverter) nodePort(i int, protocol model.Protocol, earlier portsTaken) uint16 {
	port := c.spec.Ports[i].NodePort
	if port == 0 {
		return 0
	}
	field := fmt.Sprintf("spec.ports[%d].nodePort", i)
	if portProblem(port) != "" {
		c.add(field, port, "is not a port number: use 1 to 65535, or 0 for none")
		return 0
	}
	if name, taken := earlier.nodePorts[portNumber{protocol, uint16(port)}]; taken {
		c.add(field, port, usedBy(name, protocol))
		return 0
	}
	return uint16(port)
}

// usedBy refuses a number that the port of that name has.
func usedBy(name string, p model.Protocol) string {
	return fmt.Sprintf("is also used by port %q with the same protocol, %s: use another one", name, protocolName(p))
}

func protocolName(p model.Protocol) corev1.Protocol {
	switch p {
	case model.UDP:
		return corev1.ProtocolUDP
	case model.SCTP:
		return corev1.ProtocolSCTP
	}
	return corev1.ProtocolTCP
}
