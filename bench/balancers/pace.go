package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// clientPatience is how long a client waits for an answer, from the begin of its
// connection.
const clientPatience = 3 * time.Second

// reply is what became of a request at a steady pace.
type reply struct {
	At     time.Time // begin
	Took   float64   // seconds
	Server int
	Error  string `json:",omitempty"`
}

// paceCommand makes requests at a steady pace, each over a connection of its own
// and without a second attempt, until its standard input ends. Then it prints
// what became of each.
func paceCommand(args []string) error {
	flags := flag.NewFlagSet("pace", flag.ContinueOnError)
	to := flags.String("to", "", "address")
	rate := flags.Int("rate", 300, "requests a second")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var lock sync.Mutex
	var running sync.WaitGroup
	var replies []reply
	tick := time.NewTicker(time.Second / time.Duration(*rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			running.Wait()
			return json.NewEncoder(os.Stdout).Encode(replies)
		case <-tick.C:
			running.Go(func() {
				r := askOnce(*to)
				lock.Lock()
				defer lock.Unlock()
				replies = append(replies, r)
			})
		}
	}
}

// askOnce makes a request over a new connection.
func askOnce(to string) reply {
	r := reply{At: time.Now(), Server: -1}
	id, err := ask(to, clientPatience)
	r.Took = time.Since(r.At).Seconds()
	switch {
	case err == nil:
		r.Server = id
	case errors.Is(err, syscall.ECONNREFUSED):
		r.Error = "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.Error = "closed without an answer"
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.Error = "no answer"
	default:
		r.Error = err.Error()
	}
	return r
}

// ask returns the number of the server that answers.
func ask(to string, wait time.Duration) (int, error) {
	c, err := net.DialTimeout("tcp", to, wait)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetLinger(0)
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return 0, err
	}
	var buf [message]byte
	if _, err := c.Write(buf[:]); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(c, buf[:])
	return int(buf[0]), err
}
