package systemd

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// Store keeps listeners and other files in systemd, so that the next process of the unit has them:
// connections wait in the meantime (FileDescriptorStoreMax= of systemd.service). A nil Store keeps none.
type Store struct {
	address string              // of its socket
	kept    map[string]*os.File // that this process was started with
	held    map[string]bool     // names of what systemd has
}

// NewStore returns the files of the last process; nil: the process is not supervised. It is
// called once.
func NewStore() *Store {
	if !Supervised() {
		return nil
	}
	s := &Store{address: os.Getenv("NOTIFY_SOCKET"), kept: make(map[string]*os.File), held: make(map[string]bool)}
	for _, f := range activation.Files(true) {
		if s.kept[f.Name()] != nil {
			f.Close()
			continue
		}
		s.kept[f.Name()], s.held[f.Name()] = f, true
	}
	return s
}

// Take returns the file of the last process with a name; nil: there is none.
func (s *Store) Take(name string) *os.File {
	if s == nil {
		return nil
	}
	defer delete(s.kept, name)
	return s.kept[name]
}

// Keep has systemd keep a file under a name.
func (s *Store) Keep(name string, f syscall.Conn) error {
	if s == nil {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("keep %s in systemd: %w", name, err)
	}
	var sent error
	s.held[name] = true
	failed := raw.Control(func(fd uintptr) { // a copy would share its mode with the file
		sent = s.send("FDSTORE=1\nFDNAME="+name, unix.UnixRights(int(fd)))
	})
	return errors.Join(failed, sent)
}

// Forget closes the file of the last process, if no one has taken it, and has systemd close
// its own. Without one, there is no message.
func (s *Store) Forget(name string) error {
	if s == nil || !s.held[name] {
		return nil
	}
	delete(s.held, name)
	if f := s.kept[name]; f != nil {
		f.Close()
		delete(s.kept, name)
	}
	return s.send("FDSTOREREMOVE=1\nFDNAME="+name, nil)
}

// send sends a message with files. It does not wait for systemd.
func (s *Store) send(message string, rights []byte) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil { // package net sends no files from a connected socket
		err = unix.Sendmsg(fd, []byte(message), rights, &unix.SockaddrUnix{Name: s.address}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("notify systemd of a file: %w", err)
	}
	return nil
}
