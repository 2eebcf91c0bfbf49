package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/nftproxy/nftproxy/internal/budget"
)

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
