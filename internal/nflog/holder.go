package nflog

import (
	"fmt"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/internal/host"
)

// TakenError means that another socket reads the group: the kernel sends each group to one.
type TakenError struct {
	Group uint16
	Port  uint32       // of its netlink socket
	By    host.Process // zero: not known
}

// Error names the process, or the port if that is not known.
func (e *TakenError) Error() string {
	by := fmt.Sprintf("a socket with netlink port %d", e.Port)
	if e.By.PID != 0 {
		by = "process " + e.By.String()
	}
	return fmt.Sprintf("group %d is read by %s: end it, or choose another group with --observe-group", e.Group, by)
}

// Ports returns the netlink ports of the sockets that read groups in the network namespace of
// the calling thread, by group. It needs root.
func Ports() (map[uint16]uint32, error) {
	text, err := os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_log")
	switch {
	case os.IsNotExist(err): // the kernel has not loaded nflog
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read groups of nflog: %w", err)
	}
	return portsOf(string(text)), nil
}

// portsOf reads the kernel's table, whose lines have the group and the port first.
func portsOf(table string) map[uint16]uint32 {
	ports := make(map[uint16]uint32)
	for line := range strings.Lines(table) {
		var group uint16
		var port uint32
		if _, err := fmt.Sscanf(line, "%d %d", &group, &port); err == nil {
			ports[group] = port
		}
	}
	return ports
}

// holderOf returns who reads a group; nil: no socket does, or that cannot be seen.
func holderOf(group uint16) *TakenError {
	ports, err := Ports()
	port, taken := ports[group]
	if err != nil || !taken {
		return nil // the error of the kernel says what failed
	}
	return &TakenError{Group: group, Port: port, By: host.ProcessOf(port)}
}
