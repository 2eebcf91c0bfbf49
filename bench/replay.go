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
	"github.com/nftproxy/nftproxy/internal/model"
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

// kernelAloneReplaces measures the share of the kernel in a replaced endpoint. It records the
// batches of n of them, and those that put the endpoints back. Then it sends the same bytes
// again, to the same rules.
func (m *measurer) kernelAloneReplaces(n int) error {
	batches, err := m.recordReplaces(n)
	if err != nil {
		return fmt.Errorf("record replaced endpoints: %w", err)
	}
	to, err := newSender(m.ns)
	if err != nil {
		return err
	}
	defer to.close()
	s := series{Operation: results.KernelAloneReplace, Work: &results.Work{}}
	for _, change := range batches {
		var took time.Duration
		for _, b := range change {
			one, err := to.send(b)
			if err != nil {
				return fmt.Errorf("replay a replaced endpoint: %w", err)
			}
			took += one
			m.transactions++
			s.Work.Transactions += 1 / float64(len(batches))
			s.Work.NetlinkBytes += float64(len(b)) / float64(len(batches))
		}
		s.Seconds = append(s.Seconds, took.Seconds())
	}
	m.found = append(m.found, s)
	return nil
}

// recorded are batches.
type recorded [][]byte

func (r *recorded) Write(batch []byte) (int, error) {
	*r = append(*r, slices.Clone(batch))
	return len(batch), nil
}

// recordReplaces replaces n endpoints, each of another service, and puts each back. It returns
// the batches of each change.
func (m *measurer) recordReplaces(n int) (batches [][][]byte, err error) {
	var sent recorded
	m.node.conn.Sent = &sent
	defer func() { m.node.conn.Sent = nil }()
	c := newChanger(m.world)
	for _, i := range c.choose(n) {
		before := c.services[serviceName(i)]
		for _, u := range []*model.Update{c.replaceEndpoint(i), c.set(i, before)} {
			sent = nil
			o, _, err := m.node.change(u)
			if err != nil {
				return nil, err
			}
			m.transactions += o.transactions
			batches = append(batches, sent)
		}
	}
	return batches, nil
}

// recordStart returns the batches of a start in a new namespace.
func (m *measurer) recordStart() (batches [][]byte, err error) {
	err = m.inOther(func(ns *netlab.Namespace) error {
		n, err := newNode(ns, nil)
		if err != nil {
			return err
		}
		n.conn.Sent = (*recorded)(&batches)
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
	s, err := newSender(ns)
	if err != nil {
		return 0, err
	}
	defer s.close()
	for i, b := range batches {
		one, err := s.send(b)
		if err != nil {
			return 0, fmt.Errorf("replay batch %d of %d: %w", i+1, len(batches), err)
		}
		took += one
	}
	return took, nil
}

// sender is a netlink socket with nothing around it.
type sender struct {
	fd     int
	room   int // for a batch, in bytes
	answer []byte
}

func newSender(ns *netlab.Namespace) (*sender, error) {
	s := &sender{fd: -1, answer: make([]byte, 1<<16)}
	return s, ns.Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return os.NewSyscallError("socket", err)
	})
}

func (s *sender) close() { _ = unix.Close(s.fd) }

// send sends a batch, and returns how long that took up to the kernel's answer.
func (s *sender) send(batch []byte) (took time.Duration, err error) {
	if s.room < len(batch) {
		s.room = len(batch)
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, s.room); err != nil {
			return 0, os.NewSyscallError("setsockopt", err)
		}
	}
	begin := time.Now()
	if err := unix.Sendto(s.fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}
	n, _, err := unix.Recvfrom(s.fd, s.answer, 0)
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	took = time.Since(begin)
	return took, acknowledged(s.answer[:n])
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
