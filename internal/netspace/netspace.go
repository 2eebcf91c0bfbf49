// Package netspace makes network namespaces, and runs functions in them.
package netspace

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Space is a network namespace without a name. The kernel removes it, with its interfaces,
// when the last process and socket in it have ended.
type Space struct{ handle netns.NsHandle }

// New makes a namespace that holds nothing but a loopback interface, which is down. It must be
// called on a thread that [OnOwnThread] has made, which stays in the namespace.
func New() (*Space, error) {
	handle, err := netns.New()
	if err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	return &Space{handle}, nil
}

// Open makes a namespace that no thread stays in.
func Open() (s *Space, err error) {
	done := make(chan struct{})
	OnOwnThread(func() {
		defer close(done)
		s, err = New()
	})
	<-done
	return s, err
}

// Handle returns the descriptor of the namespace, which stays the property of s.
func (s *Space) Handle() int { return int(s.handle) }

// Close gives the namespace up.
func (s *Space) Close() error { return s.handle.Close() }

// Do runs f with its thread in the namespace, and waits for it. Sockets that f
// makes stay in the namespace; goroutines that f starts are not in it.
func (s *Space) Do(f func() error) error {
	// What a goroutine that ends early leaves behind, as by t.FailNow.
	err := errors.New("function in network namespace did not return")
	done := make(chan struct{})
	OnOwnThread(func() {
		defer close(done)
		if e := netns.Set(s.handle); e != nil {
			err = fmt.Errorf("enter network namespace: %w", e)
			return
		}
		err = f()
	})
	<-done
	return err
}

// OnOwnThread runs f in a new goroutine on a thread that ends with it, so that
// no other goroutine ever runs in the namespace that f enters. The main thread
// is passed over: it cannot end, and its namespace is the one of /proc/self.
func OnOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		moved := make(chan struct{})
		OnOwnThread(func() {
			close(moved)
			f()
		})
		<-moved
		runtime.UnlockOSThread()
	}()
}
