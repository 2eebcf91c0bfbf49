// Package serve runs the HTTP servers of the daemon, and has the pages about the
// process that they serve.
package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// shutdownTimeout is how long open requests may take at the end.
const shutdownTimeout = time.Second

// Server is an HTTP server at one address.
type Server struct {
	// Name is its name in the log, such as "health server".
	Name string
	// Address is HOST:PORT. The host 0.0.0.0 stands for all addresses, those of
	// IPv6 included where the machine has it (10.1).
	Address string
	Handler http.Handler
	// WriteTimeout is the longest that an answer takes; zero means
	// [DefaultWriteTimeout].
	WriteTimeout time.Duration
	// HardFail makes it an error that the address is not available (12.55).
	// Otherwise the server retries until it is.
	HardFail bool
	Log      *slog.Logger
}

// Run serves until ctx ends, and returns nil then, when all connections are
// closed. With HardFail it returns as soon as it cannot listen.
func (s *Server) Run(ctx context.Context) error {
	l := newListener(func() (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", s.Address)
	}, s.Log.With("server", s.Name))
	l.hardFail = s.HardFail
	defer context.AfterFunc(ctx, func() { l.Close() })()
	err := l.reopen(0)
	if err == nil {
		l.log.Info("listening", "address", l.Addr())
		err = s.serve(ctx, l)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s: %w: free that address or choose another", s.Name, err)
}

// serve answers on l until ctx ends, or until l fails: that is the error.
func (s *Server) serve(ctx context.Context, l net.Listener) error {
	server := NewHTTP(s.Handler, s.WriteTimeout, s.Log)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	l = NewLimit(Connections).Listener(l)
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

const (
	// DefaultWriteTimeout is enough for every answer that is not computed for long.
	DefaultWriteTimeout = 10 * time.Second

	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	idleTimeout       = time.Minute
	maxHeaderBytes    = 16 << 10
)

// NewHTTP returns a server with limits for slow, silent or verbose clients: its
// ports are open to all hosts that can reach the node. A zero
// writeTimeout means [DefaultWriteTimeout].
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
