package status

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

	"github.com/nftproxy/nftproxy/internal/describe"
)

// Path is where a daemon answers on its metrics address.
const Path = "/status"

// ErrNoDaemon means that no daemon of nftproxy answers at an address.
var ErrNoDaemon = errors.New("no daemon answers")

const (
	dialTimeout = 2 * time.Second // to an address of this machine
	// answerTimeout and maxAnswer, in bytes, suffice for 100,000 Services. They are
	// needed because without a daemon any user may listen on its port.
	answerTimeout = 30 * time.Second
	maxAnswer     = 256 << 20
	maxReason     = 1 << 10 // bytes of a message for people
)

// Client asks the daemon at an address. It keeps a connection open.
type Client struct {
	address netip.AddrPort
	http    http.Client
}

// NewClient returns a client of the daemon at an address.
func NewClient(address netip.AddrPort) *Client {
	return &Client{address, http.Client{
		Timeout: answerTimeout,
		// Without a proxy from the environment: the daemon is on this machine.
		Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, MaxIdleConns: 1},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Address returns the address of the daemon.
func (c *Client) Address() string { return c.address.String() }

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Fetch requests the report of the daemon at an address about the Services that a
// filter selects. The error is [ErrNoDaemon] if nothing or another server answers there.
func Fetch(ctx context.Context, address netip.AddrPort, filter *Filter) (*Report, error) {
	r := &Report{}
	if err := get(ctx, address, Path, filter.query(), r); err != nil {
		return nil, err
	}
	return r, nil
}

// get requests a page of the daemon at an address once.
func get(ctx context.Context, address netip.AddrPort, path string, query url.Values, answer any) error {
	c := NewClient(address)
	defer c.Close()
	return c.Get(ctx, path, query, answer)
}

// Get requests a page and decodes its answer, which is JSON. The error is
// [ErrNoDaemon] if nothing or another server answers.
func (c *Client) Get(ctx context.Context, path string, query url.Values, answer any) error {
	target := "http://" + c.address.String() + path // the unspecified address is this machine
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", target, err)
	}
	response, err := c.http.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) {
		return fmt.Errorf("%w at %s (%w)", ErrNoDaemon, c.address, failed.Err)
	}
	defer response.Body.Close()
	if isRefusal(response) {
		var refused refusal
		_ = json.NewDecoder(io.LimitReader(response.Body, maxReason)).Decode(&refused)
		return &describe.UnknownError{Message: refused.Error}
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
		return fmt.Errorf("%w at %s (another server answers %q to %s)", ErrNoDaemon, c.address, response.Status, path)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("ask %s: read answer: %w", target, err)
	}
	return nil
}
