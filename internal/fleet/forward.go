package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarder reaches agents through the subresource "portforward" of their pods.
type forwarder struct {
	config *rest.Config
	api    rest.Interface
	port   uint16
}

// To implements [Transport].
func (f *forwarder) To(a *Agent) (http.RoundTripper, error) {
	target := f.api.Post().Timeout(0).AbsPath("/api/v1/namespaces", a.Namespace, "pods", a.Pod, "portforward").URL()
	dialer, err := f.dialer(target)
	if err != nil {
		return nil, fmt.Errorf("prepare client of the API server: %w", err)
	}
	return &http.Transport{MaxIdleConns: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return f.dial(ctx, dialer)
	}}, nil
}

// dialer returns what opens a connection as kubectl does: over a WebSocket, else over SPDY, which
// older API servers want.
func (f *forwarder) dialer(target *url.URL) (httpstream.Dialer, error) {
	first, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, f.config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, err
	}
	second := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	return portforward.NewFallbackDialerForStreaming(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// dial opens a connection to the port. Dialers of client-go take no context: one that ends too
// late is closed.
func (f *forwarder) dial(ctx context.Context, dialer httpstream.Dialer) (net.Conn, error) {
	type dialled struct {
		conn httpstream.Connection
		err  error
	}
	done := make(chan dialled, 1)
	go func() {
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- dialled{conn, err}
	}()
	select {
	case <-ctx.Done():
		go func() {
			if d := <-done; d.err == nil {
				_ = d.conn.Close()
			}
		}()
		return nil, ctx.Err()
	case d := <-done:
		if d.err != nil {
			return nil, d.err
		}
		stream, err := f.open(d.conn)
		if err != nil {
			_ = d.conn.Close()
		}
		return stream, err
	}
}

func (f *forwarder) open(conn httpstream.Connection) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(int(f.port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	failures, err := conn.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("open stream of errors: %w", err)
	}
	_ = failures.Close() // nothing is written there
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("open stream of data: %w", err)
	}
	s := &stream{Stream: data, conn: conn, ended: make(chan struct{})}
	s.Conn, _ = net.Pipe()
	go func() {
		message, _ := io.ReadAll(io.LimitReader(failures, maxStatus)) // it ends with the connection
		if len(message) > 0 {
			s.failure = errors.New(lastPart(string(message)))
		}
		close(s.ended)
		if s.failure != nil {
			_ = conn.Close()
		}
	}()
	return s, nil
}

// lastPart returns the end of a message of a kubelet, which says why, after the names of pods
// and sandboxes.
func lastPart(message string) string {
	message = strings.TrimSpace(message)
	if i := strings.LastIndex(message, ": failed to "); i >= 0 {
		message = message[i+2:]
	}
	return message
}

// stream is a connection. It has the addresses of one end of a pipe, and ignores deadlines as that
// does while it is not read: requests have deadlines of their own.
type stream struct {
	net.Conn
	httpstream.Stream
	conn    httpstream.Connection
	ended   chan struct{} // closed when the stream of errors has ended
	failure error         // what the kubelet said there
}

// Read implements [net.Conn]. At the end the kubelet says why there is no connection.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n == 0 {
		err = s.explain(err)
	}
	return n, err
}

// Write implements [net.Conn]. The kubelet may refuse the connection before a request is written.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	return n, s.explain(err)
}

// explain returns what the kubelet said about a connection that ends with err, if it says something within a second.
func (s *stream) explain(err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-s.ended:
		if s.failure != nil {
			return s.failure
		}
	case <-time.After(time.Second):
	}
	return err
}

// Close implements [net.Conn].
func (s *stream) Close() error {
	s.Stream.Reset() //nolint:errcheck // the connection ends with it
	return s.conn.Close()
}
