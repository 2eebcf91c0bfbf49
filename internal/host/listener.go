package host

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// tcpListen is the state of a listening socket in /proc/net/tcp.
const tcpListen = "0A"

// Listeners returns the users of the processes that listen for TCP on an address, or on all
// addresses with its port, in the network namespace of the calling thread.
func Listeners(at netip.AddrPort) (uids []int, err error) {
	for _, file := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/thread-self/net/" + file)
		if os.IsNotExist(err) { // no IPv6
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read listening sockets: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid
			fields := strings.Fields(line)
			if len(fields) < 8 || fields[3] != tcpListen {
				continue
			}
			local, ok := parseSocket(fields[1])
			uid, err := strconv.Atoi(fields[7])
			if ok && err == nil && local.Port() == at.Port() && (local.Addr() == at.Addr() || local.Addr().IsUnspecified() || at.Addr().IsUnspecified()) {
				uids = append(uids, uid)
			}
		}
	}
	return uids, nil
}

// parseSocket parses an address of /proc/net/tcp: words of 32 bits in the order of this
// machine, and the port, both as hexadecimal numbers.
func parseSocket(text string) (netip.AddrPort, bool) {
	address, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	n, errPort := strconv.ParseUint(port, 16, 16)
	if err != nil || errPort != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), ok
}
