package dial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Peer is a pod of a test in a cluster: it answers the connections of others, and opens connections
// when it is asked to. It needs no privileges.
type Peer struct {
	// Control is the port on localhost where the peer is asked, with a token that each request needs.
	Control uint16
	Token   string
	// Serve is the port at which it answers on all of its addresses; zero: it answers none.
	Serve     uint16
	Addresses []netip.Addr // of the pod
}

// Run answers until ctx ends.
func (p *Peer) Run(parent context.Context) error {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	serve := func(c io.Closer, loop func() error) {
		context.AfterFunc(ctx, func() { _ = c.Close() }) // the loop ends
		go func() { stop(loop()) }()
	}
	control, err := net.Listen("tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.Control).String())
	if err != nil {
		return fmt.Errorf("listen for requests: %w", err)
	}
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: conntest.Patience}
	serve(server, func() error { return server.Serve(control) })
	if p.Serve != 0 {
		if err := p.listen(serve); err != nil {
			return fmt.Errorf("answer connections: %w", err)
		}
	}
	<-ctx.Done()
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// listen listens at the port in each family of the addresses, for TCP and UDP.
func (p *Peer) listen(serve func(io.Closer, func() error)) error {
	for _, a := range p.Addresses {
		family := map[model.Family]string{model.IPv4: "4", model.IPv6: "6"}[model.FamilyOf(a)]
		at := fmt.Sprintf(":%d", p.Serve)
		l, err := net.Listen("tcp"+family, at)
		if err != nil {
			return err
		}
		serve(l, func() error { return serveTCP(l) })
		u, err := net.ListenPacket("udp"+family, at)
		if err != nil {
			return err
		}
		serve(u, func() error { return serveUDP(u, netip.AddrPortFrom(a, p.Serve)) })
	}
	return nil
}

func serveTCP(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(conntest.Patience)) // it fails for a connection that has ended, as the next line does
			_, _ = fmt.Fprintf(c, "%s %s\n", c.LocalAddr(), c.RemoteAddr())
		}()
	}
}

// serveUDP answers empty datagrams, which clients send. An answer is not empty, so that two
// peers never answer each other. own is the only address of its family, from which answers come.
func serveUDP(p net.PacketConn, own netip.AddrPort) error {
	buffer := make([]byte, conntest.MaxAnswer)
	for {
		n, from, err := p.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err == nil && n == 0 { // an error of one client must not concern the next one
			_, _ = p.WriteTo(fmt.Appendf(nil, "%s %s\n", own, from), from)
		}
	}
}

const maxRequest = 4 << 20

func (p *Peer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+conntest.SourcesPath, func(w http.ResponseWriter, r *http.Request) {
		var to []netip.Addr
		if !readJSON(w, r, &to) {
			return
		}
		for i := range to {
			to[i] = conntest.RoutedSource(to[i])
		}
		_ = json.NewEncoder(w).Encode(to) // the client has gone
	})
	mux.HandleFunc("POST "+conntest.DialPath, func(w http.ResponseWriter, r *http.Request) {
		var list []conntest.Dial
		if !readJSON(w, r, &list) {
			return
		}
		sctp := func(ctx context.Context, d *conntest.Dial) (conntest.Attempt, error) {
			return (&Prober{Patience: d.Wait}).open(ctx, d)
		}
		conntest.OpenAll(r.Context(), list, sctp, func(got *conntest.Dialled) { // a line of JSON each
			if json.NewEncoder(w).Encode(got) == nil { // else the client has gone
				_ = http.NewResponseController(w).Flush()
			}
		})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Token == "" || r.Header.Get("Authorization") != "Bearer "+p.Token {
			http.Error(w, "this peer belongs to a test with another token", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(into)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}
