package trace

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// Session is a trace that is on. It is not safe for concurrent use.
type Session struct {
	Match Match

	nl     *netlink.Conn  // receives messages about packets
	tables *nftables.Conn // owns the table
	table  Place          // of the trace
}

// eventBuffer is the space for messages that are not yet received, in bytes: some thousand.
const eventBuffer = 8 << 20

// Open turns a trace on in the network namespace of the calling thread. It needs
// CAP_NET_ADMIN, and kernel 5.12 for tables with an owner.
func Open(m Match) (*Session, error) {
	s := &Session{Match: m}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open() (err error) {
	if s.nl, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	if err := s.nl.SetReadBuffer(eventBuffer); err != nil {
		return fmt.Errorf("set socket buffer: %w", err)
	}
	if err := s.nl.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		return addPermissionAdvice(fmt.Errorf("receive traces of packets: %w", err))
	}
	if s.tables, err = nftconn.Open(nftables.AsLasting()); err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	number, err := s.tables.GetPortID()
	if err != nil {
		return fmt.Errorf("get number of netlink socket: %w", err)
	}
	s.table = Place{Family: Family(nftablesFamily(s.Match.familyOf())), Table: TablePrefix + strconv.FormatUint(uint64(number), 10)}
	return addPermissionAdvice(addTable(s.tables, s.table.Table, s.Match))
}

func addPermissionAdvice(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return errors.New(kernel.PermissionAdvice)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: a trace needs kernel 5.12 and nf_tables", err)
	}
	return err
}

// Close turns the trace off: it closes the sockets, and the kernel deletes the table.
func (s *Session) Close() error {
	var errs []error
	if s.tables != nil {
		errs = append(errs, s.tables.CloseLasting())
	}
	if s.nl != nil {
		errs = append(errs, s.nl.Close())
	}
	return errors.Join(errs...)
}

// receiveEvents returns the next events, none at the deadline. lost reports that messages were
// lost.
func (s *Session) receiveEvents(deadline time.Time) (events []Event, lost bool, err error) {
	if err := s.nl.SetReadDeadline(deadline); err != nil {
		return nil, false, err
	}
	messages, err := s.nl.Receive()
	if err != nil {
		return nil, errors.Is(err, unix.ENOBUFS), err
	}
	for _, m := range messages {
		e, ok, err := Decode(m)
		if err != nil {
			return events, lost, err
		}
		if ok {
			events = append(events, e)
		}
	}
	return events, lost, nil
}
