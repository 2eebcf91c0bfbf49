package kernel

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// leave asks the kernel a question, receives some datagrams of the answer, and leaves
// the rest, as an error during reception does.
func (s *sandbox) leave(t *testing.T, q netlink.Message, datagrams int) {
	t.Helper()
	if _, err := s.nl.Send(q); err != nil {
		t.Fatal(err)
	}
	for range datagrams {
		if !s.socket.hasDatagram() {
			t.Fatal("the kernel does not answer")
		}
		if _, err := s.socket.receiveDatagram(); err != nil {
			t.Fatal(err)
		}
	}
	s.noteFailure(unix.ENOBUFS)
}

// TestLeftAnswers: the rest of an answer on the socket is not taken for the next one,
// and an aborted dump does not block the next.
func TestLeftAnswers(t *testing.T) {
	s := newSandbox(t)
	desired := workload.Scenario(500, 4, 0) // several datagrams
	s.apply(t, desired)
	want, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	a := codec.Begin(model.IPv4)
	a.Text(unix.NFTA_SET_ELEM_LIST_TABLE, nft.TableName)
	a.Text(unix.NFTA_SET_ELEM_LIST_SET, nft.EndpointsMap)
	dump := newQuestion(unix.NFT_MSG_GETSETELEM, netlink.Request|netlink.Dump, a)
	short := newQuestion(unix.NFT_MSG_GETGEN, netlink.Request, anyFamily)
	for name, left := range map[string]func(){
		"answer":                func() { s.leave(t, short, 0) },
		"several answers":       func() { s.leave(t, short, 0); s.leave(t, short, 0) },
		"dump":                  func() { s.leave(t, dump, 0) },
		"middle of a dump":      func() { s.leave(t, dump, 2) },
		"answer after a dump":   func() { s.leave(t, dump, 1); s.leave(t, short, 0) },
		"nothing of the answer": func() { s.leave(t, short, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			left()
			if got, err := s.Generation(); err != nil || got != want {
				t.Errorf("generation %d, %v, want %d", got, err, want)
			}
			left()
			if current, _, err := s.Read(); err != nil || !plan.Diff(current, plan.Settle(current, desired)).Empty() {
				t.Errorf("read after it: %v", err)
			}
			left()
			if err := s.tryTable(0); err != nil {
				t.Errorf("batch after it: %v", err)
			}
		})
	}
}

// TestDrainGivesUp on a broken socket, and tries again with the next question.
func TestDrainGivesUp(t *testing.T) {
	s := newSandbox(t)
	broken := s.another(t)
	broken.noteFailure(unix.ENOBUFS)
	_ = broken.Close()
	for range 2 {
		if _, err := broken.Generation(); err == nil || !broken.dirty {
			t.Errorf("error %v, dirty %t", err, broken.dirty)
		}
	}
}

// TestPersist: which errors of a question are retried, and how often.
func TestPersist(t *testing.T) {
	for _, c := range []struct {
		err   error
		times int // that it comes
		asked int
		fails bool
	}{
		{nil, 0, 1, false},
		{unix.ENOBUFS, 3, 4, false},
		{unix.EINTR, 3, 4, false},
		{unix.EBUSY, 3, 4, false},
		{unix.EAGAIN, 3, 4, false},
		{unix.ENOMEM, 3, 4, false},
		{ErrChanged, askAttempts - 1, askAttempts, false},
		{ErrInconsistent, askAttempts, askAttempts, true},
		{unix.ENOBUFS, askAttempts, askAttempts, true},
		{os.ErrDeadlineExceeded, maxLost - 1, maxLost, false},
		{os.ErrDeadlineExceeded, maxLost, maxLost, true},
		{unix.EPERM, 1, 1, true},
		{unix.ENOENT, 1, 1, true},
	} {
		t.Run(fmt.Sprint(c.err, " ", c.times, " times"), func(t *testing.T) {
			asked := 0
			got, err := retryQuestion(func() (int, error) {
				if asked++; asked <= c.times {
					return 0, fmt.Errorf("ask: %w", c.err)
				}
				return 7, nil
			})
			if asked != c.asked || (err != nil) != c.fails || c.fails && !errors.Is(err, c.err) || !c.fails && got != 7 {
				t.Errorf("got %d, %v after asking %d times, want %d", got, err, asked, c.asked)
			}
		})
	}
}
