// Package serve runs the HTTP servers of the daemon and serves its debugging pages.
package serve

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// shutdownTimeout limits the time of open requests at the end.
const shutdownTimeout = time.Second

// Server is an HTTP server at one address.
type Server struct {
	Name string // for the log, such as "health server"
	// Address is HOST:PORT. The host 0.0.0.0 means all addresses, including IPv6
	// addresses if the machine has any (10.1).
	Address      string
	Opener       Opener // of another listener than one for Address; nil: that one
	Site         http.Handler
	WriteTimeout time.Duration // of an answer; zero means [DefaultWriteTimeout]
	HardFail     bool          // do not retry an unavailable address (12.55)
	Connections  int           // most open ones; zero means [Connections]
	Log          *slog.Logger
}

// Run serves until ctx ends. It then closes all connections and returns nil. With
// HardFail it returns as soon as it cannot listen.
func (s *Server) Run(ctx context.Context) error {
	l := newListener(cmp.Or[Opener](s.Opener, Address{new(net.ListenConfig), "tcp", s.Address}), s.Log.With("server", s.Name))
	l.hardFail = s.HardFail
	defer context.AfterFunc(ctx, func() { l.Close() })()
	err := l.retryListen(0)
	if err == nil {
		level := slog.LevelInfo
		if s.Opener != nil { // no client looks for the place in the log
			level = slog.LevelDebug
		}
		l.log.Log(ctx, level, "listening", "address", l.Addr())
		err = s.serve(ctx, l)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s: %w: free that address or choose another", s.Name, err)
}

// maxConnections returns the most open connections.
func (s *Server) maxConnections() int { return cmp.Or(s.Connections, Connections) }

// serve answers on l until ctx ends, or until l fails: that is the error.
func (s *Server) serve(ctx context.Context, l net.Listener) error {
	server := NewHTTP(s.Site, s.WriteTimeout, s.Log)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) }
	l = NewLimit(s.maxConnections()).Listener(l)
	ended := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(ended)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(limited) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	if cancel() {
		server.Close()
		return err
	}
	<-ended
	return nil
}

type connection struct{}

// Connection returns the connection of a request to a [Server], as its listener has accepted it; nil: it
// has come another way.
func Connection(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connection{}).(net.Conn)
	if l, ok := c.(*limited); ok {
		return l.Conn
	}
	return c
}

const (
	// DefaultWriteTimeout suffices for all answers except profiles.
	DefaultWriteTimeout = 10 * time.Second

	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	idleTimeout       = time.Minute
	maxHeaderBytes    = 16 << 10
)

// NewHTTP returns a server with limits for slow, silent or verbose clients: all hosts
// that can reach the node can connect. A zero writeTimeout means
// [DefaultWriteTimeout].
func NewHTTP(h http.Handler, writeTimeout time.Duration, log *slog.Logger) *http.Server {
	if writeTimeout == 0 {
		writeTimeout = DefaultWriteTimeout
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
