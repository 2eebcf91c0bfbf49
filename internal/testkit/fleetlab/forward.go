package fleetlab

import (
	"io"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// forward serves the subresource "portforward" of a pod, over SPDY alone: clients that ask for
// a WebSocket have to ask again.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, a *Agent) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return // it has answered
	}
	failures := make(chan httpstream.Stream, 1)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
			failures <- stream
			return nil
		}
		go func() {
			<-replied
			a.carry(stream, <-failures)
		}()
		return nil
	})
	if conn == nil {
		return
	}
	select {
	case <-conn.CloseChan():
	case <-s.ended:
	}
	_ = conn.Close()
}

// carry connects a stream with an agent, or writes why it does not.
func (a *Agent) carry(data, failures httpstream.Stream) {
	switch {
	case a == nil || a.Answers == nil && !a.Silent:
		_, _ = io.WriteString(failures, "error forwarding port 10249 to pod: failed to connect to localhost:10249 inside namespace: connect: connection refused")
		_ = failures.Close()
		_ = data.Close()
		return
	case a.Silent:
		_, _ = io.Copy(io.Discard, data)
		return
	}
	near, far := net.Pipe()
	ln := &once{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	ln.conns <- far
	server := &http.Server{Handler: a.Answers}
	go func() { _ = server.Serve(ln) }()
	go func() {
		_, _ = io.Copy(near, data)
		_ = near.Close()
	}()
	_, _ = io.Copy(data, near)
	_ = data.Close()
	_ = failures.Close()
	_ = server.Close()
}

// once is a listener with one connection.
type once struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (o *once) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

func (o *once) Close() error {
	close(o.closed)
	return nil
}

func (o *once) Addr() net.Addr { return &net.UnixAddr{Name: "pod"} }
