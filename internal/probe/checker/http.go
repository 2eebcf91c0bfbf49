package checker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

const userAgent = "nftproxy-health-check"

// httpCheck makes a request over HTTP/1.1 and looks at the response.
type httpCheck struct {
	*model.Check
	Target
	step    string // for errors
	matches *regexp.Regexp
}

func newHTTPCheck(c *model.Check, t Target) (*httpCheck, error) {
	h := &httpCheck{Check: c, Target: t, step: c.HTTP.Method + " " + c.HTTP.Path}
	var err error
	if c.HTTP.Matches != "" {
		h.matches, err = regexp.Compile(c.HTTP.Matches)
	}
	if err == nil {
		_, err = h.request(context.Background())
	}
	return h, err
}

func (h *httpCheck) request(ctx context.Context) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, h.HTTP.Method, "http://"+h.Address.String()+h.HTTP.Path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", userAgent)
	r.Header.Set("Accept", "*/*")
	r.Host, r.Close = h.Host, true
	return r, nil
}

func (h *httpCheck) run(ctx context.Context) error {
	conn, err := open(ctx, h.Check, h.Target)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := h.request(ctx)
	if err == nil {
		err = h.exchange(conn, r)
	}
	return in(h.step, err)
}

// exchange sends the request, and checks the response as far as that is needed.
func (h *httpCheck) exchange(conn io.ReadWriter, r *http.Request) error {
	if err := r.Write(conn); err != nil {
		return err
	}
	limit := &io.LimitedReader{R: conn, N: budget.CheckHeaders}
	reader := bufio.NewReader(limit)
	response, err := http.ReadResponse(reader, r)
	for err == nil && response.StatusCode < 200 && response.StatusCode != http.StatusSwitchingProtocols { // interim
		response, err = http.ReadResponse(reader, r)
	}
	switch {
	case err != nil && limit.N == 0:
		return fmt.Errorf("the header of the response is longer than %d KiB", budget.CheckHeaders>>10)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return errors.New("connection closed without a response")
	case err != nil:
		return err
	case !h.HTTP.Accepts(response.StatusCode):
		return fmt.Errorf("status %d, expected %s", response.StatusCode, h.HTTP.Expected())
	case h.HTTP.Body == "" && h.matches == nil:
		return nil
	}
	limit.N = budget.CheckHeaders + budget.CheckAnswer // chunks have headers, too
	return h.body(response.Body)
}

// body checks the beginning of the body.
func (h *httpCheck) body(from io.Reader) error {
	buffer := buffers.Get().(*[budget.CheckAnswer]byte)
	defer buffers.Put(buffer)
	n, err := io.ReadFull(from, buffer[:])
	body := buffer[:n]
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return in(fmt.Sprintf("body not complete after %d bytes", n), err)
	case !bytes.Contains(body, []byte(h.HTTP.Body)):
		return fmt.Errorf("body without %s: %s", quoted(h.HTTP.Body), quoted(string(body)))
	case h.matches != nil && !h.matches.Match(body):
		return fmt.Errorf("body does not match %s: %s", quoted(h.HTTP.Matches), quoted(string(body)))
	}
	return nil
}

// grpcCheck calls grpc.health.v1.Health/Check: one request of HTTP/2, whose body is a
// message of two fields at most. The client of google.golang.org/grpc would make the
// program a quarter larger.
type grpcCheck struct {
	*model.Check
	Target
	step    string
	request []byte
}

// Of https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md: a message follows
// a byte for its compression and its length in four bytes.
const grpcPrefix = 5

// serving is a status of the protocol; others are names in grpcStatuses.
const serving = 1

var grpcStatuses = map[uint64]string{0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

func newGRPCCheck(c *model.Check, t Target) *grpcCheck {
	g := &grpcCheck{Check: c, Target: t, step: "grpc"}
	var message []byte
	if c.Name != "" {
		g.step += " " + c.Name
		message = protowire.AppendTag(message, 1, protowire.BytesType)
		message = protowire.AppendString(message, c.Name)
	}
	g.request = binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	g.request = append(g.request, message...)
	return g
}

func (g *grpcCheck) run(ctx context.Context) error {
	conn, err := open(ctx, g.Check, g.Target, "h2")
	if err != nil {
		return err
	}
	defer conn.Close()
	scheme := "http"
	if secured, is := conn.(*tls.Conn); is {
		scheme = "https"
		if secured.ConnectionState().NegotiatedProtocol != "h2" {
			return errors.New("TLS: the server does not offer HTTP/2, which gRPC needs")
		}
	}
	return in(g.step, g.call(ctx, conn, scheme))
}

// call makes the request over a connection.
func (g *grpcCheck) call(ctx context.Context, conn net.Conn, scheme string) error {
	use := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	transport := &http.Transport{DialContext: use, DialTLSContext: use, DisableCompression: true, MaxResponseHeaderBytes: budget.CheckHeaders}
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	r := &http.Request{
		Method: http.MethodPost, ProtoMajor: 2, Host: g.Host,
		URL:           &url.URL{Scheme: scheme, Host: g.Address.String(), Path: "/grpc.health.v1.Health/Check"},
		Header:        http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {userAgent}},
		Body:          io.NopCloser(bytes.NewReader(g.request)),
		ContentLength: int64(len(g.request)),
	}
	response, err := transport.RoundTrip(r.WithContext(ctx))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	default: // in many ways, by what arrives first
		return errors.New("connection closed: the server may not speak gRPC on this port")
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d of HTTP: this is not a gRPC server", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, budget.CheckAnswer))
	if err != nil {
		return err
	}
	return g.result(body, cmp.Or(response.Trailer.Get("Grpc-Status"), response.Header.Get("Grpc-Status")))
}

// result returns what a response says about the health of the service.
func (g *grpcCheck) result(body []byte, code string) error {
	const notFound, unimplemented = 5, 12
	switch n, err := strconv.Atoi(code); {
	case err != nil:
		return errors.New("the response has no grpc-status: this is not a gRPC server")
	case n == notFound:
		return errors.New("unknown service (NOT_FOUND)")
	case n == unimplemented:
		return errors.New("the server has no health service (UNIMPLEMENTED)")
	case n != 0:
		return fmt.Errorf("grpc-status %d", n)
	case len(body) < grpcPrefix || body[0] != 0:
		return errors.New("the response has no message")
	}
	var status uint64
	for message := body[grpcPrefix:]; len(message) > 0; {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errors.New("the message of the response is malformed")
		}
		value := protowire.ConsumeFieldValue(number, kind, message[n:])
		if value < 0 {
			return errors.New("the message of the response is malformed")
		}
		if number == 1 && kind == protowire.VarintType {
			status, _ = protowire.ConsumeVarint(message[n:])
		}
		message = message[n+value:]
	}
	if status != serving {
		return errors.New(cmp.Or(grpcStatuses[status], fmt.Sprintf("status %d", status)))
	}
	return nil
}
