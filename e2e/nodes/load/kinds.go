package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// connection is one that HTTP requests go over.
type connection struct {
	net.Conn
	answers *bufio.Reader
}

func dial(network, target string) (*connection, error) {
	c, err := net.DialTimeout(network, target, patience)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: c, answers: bufio.NewReader(c)}, nil
}

// get makes a request, and reports whether the server keeps the connection. It is
// written by hand because clients of package net/http repeat failed requests.
func (c *connection) get() (kept bool, err error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	if _, err := fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: load\r\n\r\n"); err != nil {
		return false, err
	}
	r, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return false, fmt.Errorf("answer to %s: %w", c.LocalAddr(), err)
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return !r.Close, err
}

func newTCP(target string) asker {
	return func() error {
		c, err := dial("tcp", target)
		if err != nil {
			return err
		}
		defer c.Close()
		// Close with a reset, so that the server forgets the connection immediately. The
		// same port is used for other addresses of the Service, and masquerading chooses
		// ports at random: both soon lead to the same port at the same server.
		if err := c.Conn.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		_, err = c.get()
		return err
	}
}

func keptTCP(target string) asker {
	var c *connection
	return func() (err error) {
		if c == nil {
			if c, err = dial("tcp", target); err != nil {
				return err
			}
		}
		kept, err := c.get()
		if err != nil || !kept {
			c.Close()
			c = nil
		}
		return err
	}
}

// datagram sends one and waits for its answer, not one to an earlier datagram.
func (c *connection) datagram() error {
	message := time.Now().Format(time.RFC3339Nano)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(c, message); err != nil {
		return err
	}
	buffer := make([]byte, 1024)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(buffer[:n]), message) {
			return nil
		}
	}
}

func newUDP(target string) asker {
	return func() error {
		c, err := dial("udp", target)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.datagram()
	}
}

func keptUDP(target string) asker {
	var c *connection
	return func() (err error) {
		if c == nil {
			if c, err = dial("udp", target); err != nil {
				return err
			}
		}
		return c.datagram()
	}
}

// streams sends messages over a stream, and opens another one when the server
// ends it. The client of gRPC connects again when the server ends the connection.
func streams(target string) asker {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return func() error { return err }
	}
	var s grpc.ClientStream
	var end context.CancelFunc
	return func() error {
		if s == nil {
			if s, end, err = open(conn); err != nil {
				return err
			}
		}
		answer, err := exchange(s)
		if err != nil || answer == last {
			end()
			s = nil
		}
		return err
	}
}

func open(conn *grpc.ClientConn) (grpc.ClientStream, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(patience, cancel)
	s, err := conn.NewStream(ctx, &service.Streams[0], method)
	if !timer.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return s, cancel, nil
}

// exchange sends a message and returns the answer.
func exchange(s grpc.ClientStream) (string, error) {
	if err := s.SendMsg(wrapperspb.String("hello")); err != nil {
		return "", err
	}
	answers := make(chan error, 1)
	var answer wrapperspb.StringValue
	go func() { answers <- s.RecvMsg(&answer) }()
	select {
	case err := <-answers:
		return answer.Value, err
	case <-time.After(patience):
		return "", fmt.Errorf("no answer on a stream after %v", patience)
	}
}
