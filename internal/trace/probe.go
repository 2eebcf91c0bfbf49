package trace

import (
	"net"
)

// Probe opens a connection to the frontend from this machine and closes it: it connects over
// TCP, and sends an empty datagram over UDP. What happens to it is what the trace shows.
func Probe(m Match) {
	d := net.Dialer{Timeout: Patience}
	c, err := d.Dial(m.Protocol.String(), m.Frontend.String())
	if err != nil {
		return
	}
	defer c.Close()
	if m.Protocol.String() == "udp" {
		_, _ = c.Write(nil)
	}
}
