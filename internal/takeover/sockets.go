package takeover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Of <linux/inet_diag.h> and <linux/tcp.h>.
const (
	tcpTimeWait = 6
	tcpListen   = 10
	anyCookie   = 0xffffffff
	diagLength  = 56 // of struct inet_diag_req_v2
)

// ownConnections ends the TCP connections of this machine from addresses that it has lost:
// their programs would wait for a timeout. A program that dials an address of the interface
// gets the same one for its own end.
func (r *report) ownConnections(lost map[netip.Addr]bool) {
	ended := 0
	var errs []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil {
			errs = append(errs, fmt.Errorf("list them: %w", err))
		}
		for _, s := range sockets {
			from, _ := netip.AddrFromSlice(s.ID.Source)
			if !lost[from.Unmap()] || s.State == tcpTimeWait || s.State == tcpListen {
				continue
			}
			switch err := destroySocket(s); {
			case err == nil:
				ended++
			case !errors.Is(err, unix.ENOENT): // it has ended
				errs = append(errs, err)
			}
		}
	}
	if ended > 0 {
		r.addRemoved("%s of this machine from addresses of %s", terminal.Count(ended, "connection"), IPVSInterface)
	}
	r.addFailure(errors.Join(errs...), "connections of this machine from addresses of %s", IPVSInterface)
}

// rawRequest is a request that is encoded already.
type rawRequest []byte

func (r rawRequest) Len() int          { return len(r) }
func (r rawRequest) Serialize() []byte { return r }

// destroySocket ends a connection: its program gets ECONNABORTED.
func destroySocket(s *netlink.Socket) error {
	source, destination := s.ID.Source, s.ID.Destination
	if s.Family == unix.AF_INET {
		source, destination = source.To4(), destination.To4()
	}
	b := []byte{s.Family, unix.IPPROTO_TCP, 0, 0, 0, 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, s.ID.SourcePort)
	b = binary.BigEndian.AppendUint16(b, s.ID.DestinationPort)
	for _, address := range [][]byte{source, destination} {
		b = slices.Concat(b, address, make([]byte, 16-len(address)))
	}
	b = binary.NativeEndian.AppendUint32(b, s.ID.Interface)
	b = binary.NativeEndian.AppendUint32(b, anyCookie)
	b = binary.NativeEndian.AppendUint32(b, anyCookie)
	request := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	request.AddData(rawRequest(b[:diagLength]))
	_, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	return err
}
