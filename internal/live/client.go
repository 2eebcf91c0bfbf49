package live

import (
	"context"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/internal/status"
)

// answerTimeout is short, because a view waits.
const answerTimeout = 10 * time.Second

// Query is what a reader asks for. The zero value asks for the busiest Services.
type Query struct {
	Limit   int    // most Services; zero: as many as the daemon chooses
	Filter  string // part of the names of Services
	Service string // "namespace/name" of the Service in the detail; empty: none
}

// values returns the query of a URL.
func (q Query) values() url.Values {
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
	return v
}

// Client asks a daemon for samples.
type Client struct{ *status.Client }

// NewClient returns a client of the daemon at an address.
func NewClient(address netip.AddrPort) *Client { return &Client{status.NewClient(address)} }

// Sample asks for a sample. The error is [status.ErrNoDaemon] if nothing or another
// server answers.
func (c *Client) Sample(ctx context.Context, q Query) (*Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	s := &Sample{}
	if err := c.Get(ctx, Path, q.values(), s); err != nil {
		return nil, err
	}
	return s, nil
}
