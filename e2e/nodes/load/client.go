package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Count is the record of a client.
type Count struct {
	Kind    string        `json:"kind"`
	Target  string        `json:"target"`
	Sent    int           `json:"sent"`
	Failed  int           `json:"failed"`
	InARow  int           `json:"inARow"` // most failures
	Slowest time.Duration `json:"slowest"`
	Errors  []string      `json:"errors,omitempty"` // the first ones
	row     int
}

// patience is how long a request may take. It is generous enough that only lost
// requests take longer, also on a machine that is busy with other things.
const patience = 10 * time.Second

// asker makes a request. After an error it begins with a new connection.
type asker func() error

// kinds makes askers by the kind of their requests.
var kinds = map[string]func(target string) asker{
	"tcp":      newTCP,  // a connection each
	"kept":     keptTCP, // over one connection, until the server ends it
	"udp":      newUDP,  // a socket each
	"udp-kept": keptUDP, // over one socket
	"grpc":     streams, // over a stream of gRPC, until the server ends it
}

type clients struct {
	sync.Mutex
	counts []*Count
}

// start starts clients for KIND=ADDRESS.
func start(targets []string, pause time.Duration) (*clients, error) {
	c := &clients{}
	for _, t := range targets {
		kind, target, _ := strings.Cut(t, "=")
		newAsker, ok := kinds[kind]
		if !ok {
			return nil, fmt.Errorf("kind of request %q", kind)
		}
		count := &Count{Kind: kind, Target: target}
		c.counts = append(c.counts, count)
		go func() {
			for ask := newAsker(target); ; time.Sleep(pause) {
				begin := time.Now()
				err := ask()
				c.add(count, time.Since(begin), err)
			}
		}()
	}
	return c, nil
}

func (c *clients) add(n *Count, took time.Duration, err error) {
	c.Lock()
	defer c.Unlock()
	n.Sent++
	n.Slowest = max(n.Slowest, took)
	if err == nil {
		n.row = 0
		return
	}
	n.Failed++
	n.row++
	n.InARow = max(n.InARow, n.row)
	if len(n.Errors) < 20 {
		n.Errors = append(n.Errors, fmt.Sprintf("%s %v", time.Now().Format("15:04:05.000"), err))
	}
}

// report writes the counts, and begins to count failures in a row again if it is to.
func (c *clients) report(w io.Writer, begin bool) {
	c.Lock()
	defer c.Unlock()
	_ = json.NewEncoder(w).Encode(c.counts) // the reader may have gone
	for _, n := range c.counts {
		if begin {
			n.row, n.InARow = 0, 0
		}
	}
}
