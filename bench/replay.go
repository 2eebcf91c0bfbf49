package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// kernelAlone measures the share of the kernel in a cold start: it records
// the batches of one, which does not count, and sends the same bytes to another
// empty namespace.
func (m *measurer) kernelAlone() error {
	batches, err := m.recordStart()
	if err != nil {
		return fmt.Errorf("record a start: %w", err)
	}
	return m.inOther(func(ns *netlab.Namespace) error {
		took, err := replay(ns, batches)
		s := series{Operation: results.KernelAlone, Seconds: []float64{took.Seconds()}, Work: &results.Work{Transactions: float64(len(batches))}}
		for _, b := range batches {
			s.Work.NetlinkBytes += float64(len(b))
		}
		m.found = append(m.found, s)
		return err
	})
}

// recordStart returns the batches of a start in a new namespace.
func (m *measurer) recordStart() (batches [][]byte, err error) {
	err = m.inOther(func(ns *netlab.Namespace) error {
		n, err := newNode(ns, nil)
		if err != nil {
			return err
		}
		n.conn.Sent = func(batch []byte) { batches = append(batches, slices.Clone(batch)) }
		_, _, err = n.start(m.world.snapshot())
		return errors.Join(err, n.stop())
	})
	return batches, err
}

// inOther calls f with a new namespace. It stays until the end, because the kernel
// needs long to delete its rules.
func (m *measurer) inOther(f func(*netlab.Namespace) error) error {
	ns, err := netlab.NewNamespace()
	if err != nil {
		return err
	}
	m.others = append(m.others, ns)
	return f(ns)
}

func (m *measurer) closeOthers() {
	for _, ns := range m.others {
		ns.Close()
	}
}

// replay sends batches to a namespace, and returns how long the kernel took to carry
// them out.
func replay(ns *netlab.Namespace, batches [][]byte) (took time.Duration, err error) {
	fd := -1
	if err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return os.NewSyscallError("socket", err)
	}); err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	answer := make([]byte, 1<<16)
	for i, b := range batches {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, len(b)); err != nil {
			return 0, os.NewSyscallError("setsockopt", err)
		}
		begin := time.Now()
		if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return 0, os.NewSyscallError("sendto", err)
		}
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return 0, os.NewSyscallError("recvfrom", err)
		}
		took += time.Since(begin)
		if err := acknowledged(answer[:n]); err != nil {
			return 0, fmt.Errorf("replay batch %d of %d: %w", i+1, len(batches), err)
		}
	}
	return took, nil
}

// acknowledged returns the error of the first answer to a batch. Only the last
// message of a batch asks for one, unless something is refused.
func acknowledged(answer []byte) error {
	if len(answer) < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel does not acknowledge it")
	}
	if n := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); n != 0 {
		return unix.Errno(-n)
	}
	return nil
}
