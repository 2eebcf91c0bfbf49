package main

import (
	"fmt"
	"sync"
)

const (
	clients = 4
	enough  = 200 // requests before and after an event
)

// load is clients that make requests to the load balancer IP without pause, each on
// a new connection.
type load struct {
	ask     func() (string, error)
	under   sync.RWMutex // read-locked by requests under way
	workers sync.WaitGroup

	mu      sync.Mutex // of what follows
	changed *sync.Cond
	answers answers // since the last reset
	count   int     // in all
	failed  error   // the first failure
	ended   bool
}

func (d *demo) load() *load {
	l := &load{answers: answers{}, ask: func() (string, error) { return d.get(frontends[0].address) }}
	l.start()
	return l
}

func (l *load) start() {
	l.changed = sync.NewCond(&l.mu)
	for range clients {
		l.workers.Go(func() {
			for l.request() {
			}
		})
	}
}

// request makes a request, and reports whether there should be another one.
func (l *load) request() bool {
	l.under.RLock()
	defer l.under.RUnlock()
	name, err := l.ask()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if err == nil {
		l.answers[name]++
	} else if l.failed == nil {
		l.failed = fmt.Errorf("request %d: %w", l.count, err)
	}
	l.changed.Broadcast()
	return !l.ended && l.failed == nil
}

// more waits for more requests.
func (l *load) more(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for until := l.count + n; l.count < until && l.failed == nil && !l.ended; {
		l.changed.Wait()
	}
}

// reset returns the answers since the last reset, once no request is under way.
func (l *load) reset() answers {
	l.under.Lock()
	defer l.under.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.answers
	l.answers = answers{}
	return last
}

// finish ends the load, and returns the answers since the last reset, or the first
// failure.
func (l *load) finish() (answers, error) {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.workers.Wait()
	return l.reset(), l.failed
}
