package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	port     = ":8080" // HTTP, UDP
	grpcPort = ":8081"
	// goodbye is how long the server continues after SIGTERM, no longer ready. The
	// next answer on each connection announces its end. UDP has no such message: the
	// proxy moves its clients to other servers.
	goodbye = 5 * time.Second
	// last is the answer after which a server ends a stream.
	last = "last"
)

// draining is true after SIGTERM.
var draining atomic.Bool

// serve answers until SIGTERM, as servers should that close no connection in the
// middle of a request.
func serve() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	errs := make(chan error)
	go func() { errs <- http.ListenAndServe(port, http.HandlerFunc(serveHTTP(name))) }()
	go func() { errs <- serveUDP(name) }()
	go func() { errs <- serveStreams() }()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	select {
	case err := <-errs:
		return err
	case <-stop:
		draining.Store(true)
		time.Sleep(goodbye)
		return nil
	}
}

func serveHTTP(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if draining.Load() {
			w.Header().Set("Connection", "close")
			if r.URL.Path == "/ready" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
		fmt.Fprint(w, name)
	}
}

func serveUDP(name string) error {
	c, err := net.ListenPacket("udp", port)
	if err != nil {
		return err
	}
	buffer := make([]byte, 1024)
	for {
		n, from, err := c.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(fmt.Appendf(buffer[:n:n], " %s", name), from); err != nil {
			return err
		}
	}
}

// method is that of the streams, whose messages are texts.
const method = "/load.Echo/Echo"

var service = grpc.ServiceDesc{ServiceName: "load.Echo", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
	{StreamName: "Echo", Handler: echo, ServerStreams: true, ClientStreams: true},
}}

func serveStreams() error {
	l, err := net.Listen("tcp", grpcPort)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	s.RegisterService(&service, struct{}{})
	go func() {
		for !draining.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		s.GracefulStop()
	}()
	if err := s.Serve(l); err != nil {
		return err
	}
	select {} // the other servers end the process
}

// echo answers the messages of a stream.
func echo(_ any, s grpc.ServerStream) error {
	for {
		var message wrapperspb.StringValue
		if err := s.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if draining.Load() {
			return s.SendMsg(wrapperspb.String(last))
		}
		if err := s.SendMsg(&message); err != nil {
			return err
		}
	}
}
