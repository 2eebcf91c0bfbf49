package live

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
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/status"
)

const (
	dialTimeout = 2 * time.Second // to an address of this machine
	// answerTimeout and maxAnswer, in bytes, suffice for the largest answer. They are
	// needed because without a daemon any user may listen on its port.
	answerTimeout = 10 * time.Second
	maxAnswer     = 16 << 20
)

// Query is what a reader asks for. The zero value asks for the busiest Services.
type Query struct {
	Limit   int    // most Services; zero: as many as the daemon chooses
	Filter  string // part of the names of Services
	Service string // "namespace/name" of the Service in the detail; empty: none
}

// encode returns the query of a URL.
func (q Query) encode() string {
	v := url.Values{}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Filter != "" {
		v.Set("filter", q.Filter)
	}
	if q.Service != "" {
		v.Set("service", q.Service)
	}
	return v.Encode()
}

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

// Sample asks for a sample. The error is [status.ErrNoDaemon] if nothing or another
// server answers.
func (c *Client) Sample(ctx context.Context, q Query) (*Sample, error) {
	target := "http://" + c.address.String() + Path // the unspecified address is this machine
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target+"?"+q.encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", target, err)
	}
	response, err := c.http.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("%w at %s (%w)", status.ErrNoDaemon, c.address, failed.Err)
	}
	defer response.Body.Close()
	body := io.LimitReader(response.Body, maxAnswer)
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusBadRequest:
		reason, _ := io.ReadAll(io.LimitReader(body, 1<<10)) // what there is
		return nil, fmt.Errorf("ask %s: the daemon answers: %s", target, strings.TrimSpace(string(reason)))
	default:
		return nil, fmt.Errorf("%w at %s (another server or an earlier version answers %q to %s)", status.ErrNoDaemon, c.address, response.Status, Path)
	}
	s := &Sample{}
	if err := json.NewDecoder(body).Decode(s); err != nil {
		return nil, fmt.Errorf("ask %s: read answer: %w", target, err)
	}
	return s, nil
}
