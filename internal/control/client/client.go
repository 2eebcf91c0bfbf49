// Package client asks the nftproxy behind a control socket for changes of servers.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/control"
)

// ErrNoSocket means that no nftproxy answers on a control socket.
var ErrNoSocket = errors.New("no running nftproxy has a control socket")

const (
	maxAnswer     = 16 << 20 // bytes
	answerTimeout = 30 * time.Second
)

// Client asks the nftproxy behind a control socket, which must be of root or of this user, and in a
// directory of theirs. It keeps a connection open.
type Client struct {
	path string
	http http.Client
	peer control.Peer // of the last connection
}

// NewClient returns a client of the nftproxy at a socket.
func NewClient(path string) *Client {
	client := &Client{path: path}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return control.Dial(ctx, path, func(p control.Peer) error {
			client.peer = p
			return cmp.Or(p.CheckUser(), control.CheckDirectory(path))
		})
	}
	client.http = http.Client{Timeout: answerTimeout, Transport: &http.Transport{DialContext: dial, MaxIdleConns: 1}}
	return client
}

// Peer returns the process that has answered.
func (c *Client) Peer() control.Peer { return c.peer }

func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do sends a request. The error of an answer is the error.
func (c *Client) Do(ctx context.Context, request *api.Control) (*api.Controlled, error) {
	if err := control.CheckPath(c.path); err != nil {
		return nil, err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://nftproxy"+api.ControlPath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(r)
	if err != nil {
		return nil, c.failed(err)
	}
	defer response.Body.Close()
	answer := new(api.Controlled)
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(answer); err != nil {
		return nil, fmt.Errorf("ask nftproxy at %s: read answer: %w", c.path, err)
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer, nil
}

func (c *Client) failed(err error) error {
	switch inner := (*net.OpError)(nil); {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ask nftproxy at %s: %w: run this as root", c.path, fs.ErrPermission)
	case errors.As(err, &inner) && inner.Op == "dial":
		return fmt.Errorf("%w at %s (%w): its systemd unit has one, and \"nftproxy run --control-socket %s\"", ErrNoSocket, c.path, inner.Err, c.path)
	}
	return fmt.Errorf("ask nftproxy at %s: %w", c.path, err)
}
