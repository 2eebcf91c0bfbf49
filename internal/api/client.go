package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// ErrNoDaemon means that no daemon of nftproxy answers at an address.
var ErrNoDaemon = errors.New("no daemon answers")

const (
	dialTimeout = 2 * time.Second // to an address of this machine
	// answerTimeout and maxAnswer, in bytes, suffice for 100,000 Services. They are
	// needed because without a daemon any user may listen on its port.
	answerTimeout = 30 * time.Second
	sampleTimeout = 10 * time.Second
	maxAnswer     = 256 << 20
	maxReason     = 1 << 10 // bytes of a message for people
)

// Client asks the daemon at an address. It keeps a connection open.
type Client struct {
	address netip.AddrPort
	name    string // in messages
	http    http.Client
}

// NewClient returns a client of the daemon at an address.
func NewClient(address netip.AddrPort) *Client {
	// Without a proxy from the environment: the daemon is on this machine.
	return newClient(address, address.String(), &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, MaxIdleConns: 1})
}

// NewClientThrough returns a client of a daemon that a transport reaches. The daemon listens on
// that port of a loopback address, and has a name in messages. The caller closes the transport.
func NewClientThrough(transport http.RoundTripper, port uint16, name string) *Client {
	return newClient(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), name, transport)
}

func newClient(address netip.AddrPort, name string, transport http.RoundTripper) *Client {
	return &Client{address, name, http.Client{
		Timeout:       answerTimeout,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Address returns the address of the daemon.
func (c *Client) Address() netip.AddrPort { return c.address }

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for the report about the Services that a filter selects.
func (c *Client) Status(ctx context.Context, filter *Filter) (*Status, error) {
	return get[Status](ctx, c, StatusPath, filter.query())
}

// Describe asks for the description of a Service. The error is an [UnknownError] if the
// daemon has no Service, or several ones, of this name.
func (c *Client) Describe(ctx context.Context, service string) (*Description, error) {
	return get[Description](ctx, c, DescribePath, url.Values{"service": {service}})
}

// Serving asks whether the daemon serves a Service, at a lower cost than Describe.
func (c *Client) Serving(ctx context.Context, service string) (Serving, error) {
	d, err := c.DescribeRules(ctx, service) // it is asked every second or so
	if err != nil {
		return Serving{}, err
	}
	return d.Serving(), nil
}

// DescribeRules is Describe without what packets have left in the kernel, which costs less.
func (c *Client) DescribeRules(ctx context.Context, service string) (*Description, error) {
	return get[Description](ctx, c, DescribePath, url.Values{"service": {service}, "counts": {"false"}})
}

// Sample asks for live data. The answer is waited for only briefly, because a view waits.
func (c *Client) Sample(ctx context.Context, q LiveQuery) (*Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	return get[Sample](ctx, c, LivePath, q.values())
}

// Drains asks for the drained endpoints, and for the effect of draining targets, as
// drain.Target.Encode returns them.
func (c *Client) Drains(ctx context.Context, q DrainQuery) (*Drains, error) {
	return get[Drains](ctx, c, DrainPath, q.values())
}

// Observe asks for connections that were refused. With q.Wait the answer may take that long.
func (c *Client) Observe(ctx context.Context, q *ObserveQuery) (*Observed, error) {
	return get[Observed](ctx, c, ObservePath, q.values())
}

// Compare asks for what differs between the kernel and the rules that are wanted, and for the
// digests of these, or for the elements of one Service, as namespace/name.
func (c *Client) Compare(ctx context.Context, service string) (*Comparison, error) {
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	return get[Comparison](ctx, c, ComparePath, query)
}

// Basis asks for the facts, besides the objects, that decide over the rules.
func (c *Client) Basis(ctx context.Context) (*Basis, error) {
	return get[Basis](ctx, c, BasisPath, nil)
}

// get requests a page and decodes its answer, which is a document. The error is
// [ErrNoDaemon] if nothing or another server answers.
func get[D any](ctx context.Context, c *Client, path string, query url.Values) (*D, error) {
	document := new(D)
	if err := c.get(ctx, path, query, document); err != nil {
		return nil, err
	}
	return document, nil
}

func (c *Client) get(ctx context.Context, path string, query url.Values, answer any) error {
	target := "http://" + c.address.String() + path // the unspecified address is this machine
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if c.name != c.address.String() { // of another machine
		target = c.name + strings.TrimPrefix(target, "http://"+c.address.String())
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", target, err)
	}
	response, err := c.http.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) {
		return fmt.Errorf("%w at %s (%w)", ErrNoDaemon, c.name, failed.Err)
	}
	defer response.Body.Close()
	if isRefusal(response) {
		var refused Refusal
		_ = json.NewDecoder(io.LimitReader(response.Body, maxReason)).Decode(&refused)
		return &UnknownError{Message: refused.Error}
	}
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest:
		reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
		return fmt.Errorf("ask %s: %s", target, strings.TrimSpace(string(reason)))
	case http.StatusInternalServerError:
		return fmt.Errorf("ask %s: the daemon failed to answer: see its log", target)
	case http.StatusTooManyRequests:
		return fmt.Errorf("ask %s: too many requests: try again", target)
	default:
		return fmt.Errorf("%w at %s (another server answers %q to %s)", ErrNoDaemon, c.name, response.Status, path)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("ask %s: read answer: %w", target, err)
	}
	return nil
}

// isRefusal reports whether an answer with the status 404 is from a daemon: other servers do
// not have the page.
func isRefusal(r *http.Response) bool {
	return r.StatusCode == http.StatusNotFound && strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}
