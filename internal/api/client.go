package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// ErrNoDaemon means that no daemon of nftproxy answers at an address.
var ErrNoDaemon = errors.New("no daemon answers")

const (
	dialTimeout = 2 * time.Second // to an address of this machine
	// answerTimeout suffices for 100,000 Services. It is needed because without a daemon any user
	// may listen on its port.
	answerTimeout = 30 * time.Second
	sampleTimeout = 10 * time.Second
	maxReason     = 1 << 10 // bytes of a message for people
)

// large are the pages about all Services. The answers of others have the limit of a node.
var large = []string{StatusPath, ComparePath, BasisPath}

// Client asks a daemon. It keeps a connection open. After Close it opens another one, if it is used.
type Client struct {
	host string // of URLs
	name string // in messages
	most int64  // bytes of an answer about all Services
	http http.Client
	// Decoder decodes documents; nil: [Decode] does.
	Decoder Decoder
}

// Decoder decodes documents of a daemon.
type Decoder interface {
	Decode(content []byte, document any) error
}

// NewClient returns a client of the daemon at an address.
func NewClient(address netip.AddrPort) *Client {
	return newClient(address.String(), address.String(), budget.Answer, dialing((&net.Dialer{Timeout: dialTimeout}).DialContext))
}

// NewSocketClient returns a client of a daemon on this machine, with a name for messages. dial connects
// to it, and returns an error if it is not the daemon.
func NewSocketClient(name string, dial func(context.Context) (net.Conn, error)) *Client {
	return newClient("localhost", name, budget.Answer, dialing(func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(ctx)
	}))
}

// dialing returns a transport without a proxy from the environment: the daemon is on this machine.
func dialing(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: dial, MaxIdleConns: 1}
}

// NewClientThrough returns a client of a daemon that a transport reaches. The daemon listens on
// that port of a loopback address, and has a name in messages. The caller closes the transport.
func NewClientThrough(transport http.RoundTripper, port uint16, name string) *Client {
	return newClient(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port).String(), name, budget.NodeAnswer, transport)
}

func newClient(host, name string, most int64, transport http.RoundTripper) *Client {
	return &Client{host: host, name: name, most: most, http: http.Client{
		Timeout:       answerTimeout,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Name returns the daemon's address, or another name of it for messages.
func (c *Client) Name() string { return c.name }

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for the report about the Services that a filter selects.
func (c *Client) Status(ctx context.Context, filter *Filter) (*Status, error) {
	return get[Status](ctx, c, StatusPath, encode(filter.parameters()))
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
	return get[Sample](ctx, c, LivePath, encode(q.parameters()))
}

// Drains asks for the drained endpoints, and for the effect of draining targets, as
// drain.Target.Encode returns them.
func (c *Client) Drains(ctx context.Context, q DrainQuery) (*Drains, error) {
	return get[Drains](ctx, c, DrainPath, q.values())
}

// Observe asks for connections that were refused. With q.Wait the answer may take that long.
func (c *Client) Observe(ctx context.Context, q *ObserveQuery) (*Observed, error) {
	return get[Observed](ctx, c, ObservePath, encode(q.parameters()))
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
	target := "http://" + c.host + path // the unspecified address is this machine
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if c.name != c.host { // of another machine, or a socket
		target = c.name + strings.TrimPrefix(target, "http://"+c.host)
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
	if err := c.decode(response.Body, path, answer); err != nil {
		return fmt.Errorf("ask %s: read answer: %w", target, err)
	}
	return nil
}

func (c *Client) decode(body io.Reader, path string, answer any) error {
	most := int64(budget.NodeAnswer)
	if slices.Contains(large, path) {
		most = c.most
	}
	content, err := io.ReadAll(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return err
	case int64(len(content)) > most:
		return fmt.Errorf("it has more than %d MiB", most>>20)
	}
	return c.Decode(content, answer)
}

// Decode decodes a document of the daemon.
func (c *Client) Decode(content []byte, document any) error {
	if c.Decoder != nil {
		return c.Decoder.Decode(content, document)
	}
	return Decode(content, document)
}

// Decode decodes a document of a daemon, unless that takes many times its size.
func Decode(content []byte, document any) error {
	if dense, _ := budget.IsDense(content); dense {
		return errors.New("it has too many empty values")
	}
	return json.Unmarshal(content, document)
}

// isRefusal reports whether an answer with the status 404 is from a daemon: other servers do
// not have the page.
func isRefusal(r *http.Response) bool {
	return r.StatusCode == http.StatusNotFound && strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}

// Page asks for a page, with its query, as it is: the first 16 MiB of it. The error is
// [ErrNoDaemon] if nothing answers.
func (c *Client) Page(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.host+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	response, err := c.http.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("%w (%w)", ErrNoDaemon, failed.Err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
		return nil, fmt.Errorf("ask for %s: %s: %s", path, response.Status, strings.TrimSpace(string(reason)))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, budget.NodeAnswer))
	if err != nil {
		return nil, fmt.Errorf("ask for %s: read answer: %w", path, err)
	}
	return body, nil
}

// DefaultAddress is where a daemon answers unless it is configured otherwise.
var DefaultAddress = netip.MustParseAddrPort("127.0.0.1:10249")

// ParseAddress parses an address with or without a port.
func ParseAddress(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, DefaultAddress.Port()), nil
	}
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return address, fmt.Errorf("%q is not an address: write it like 127.0.0.1:10249 or [::1]:10249", text)
	}
	return address, nil
}

// ErrElsewhere means that an address of a process is not reachable from here.
var ErrElsewhere = errors.New("runs in another network namespace")

// Process is a process that may be a daemon.
type Process struct {
	Name    string         // for messages
	Address netip.AddrPort // where it answers; the zero value: nowhere
	Err     error          // why the address is not known, or [ErrElsewhere]
}

// Ask calls f with clients of a daemon, until one answers: until f returns another error than
// [ErrNoDaemon]. A given address is the only one that is asked; without one, these are
// [DefaultAddress] and the addresses of the processes. Any user may listen there while no daemon does:
// the answers are for readers without privileges, and for those that have named the address. A client is
// closed after its call.
func Ask(given netip.AddrPort, processes iter.Seq[Process], f func(*Client) error) error {
	if given.IsValid() {
		return NewClient(given).Use(f)
	}
	failed := NewClient(DefaultAddress).Use(f)
	if !errors.Is(failed, ErrNoDaemon) {
		return failed
	}
	asked := []netip.AddrPort{DefaultAddress}
	var here, elsewhere []error
	for p := range processes {
		switch {
		case errors.Is(p.Err, ErrElsewhere):
			elsewhere = append(elsewhere, fmt.Errorf("process %s %w", p.Name, p.Err))
			continue
		case p.Err != nil:
			here = append(here, fmt.Errorf("process %s %w", p.Name, p.Err))
			continue
		case !p.Address.IsValid() || slices.Contains(asked, p.Address):
			continue
		}
		asked = append(asked, p.Address)
		err := NewClient(p.Address).Use(f)
		if !errors.Is(err, ErrNoDaemon) {
			return err
		}
		here = append(here, fmt.Errorf("process %s: %w", p.Name, err))
	}
	if len(here) == 0 && len(elsewhere) > 0 {
		here = elsewhere[:1] // one shows what to do
	}
	return errors.Join(append([]error{failed}, here...)...)
}

// Use calls f with the client, and closes it.
func (c *Client) Use(f func(*Client) error) error {
	defer c.Close()
	return f(c)
}
