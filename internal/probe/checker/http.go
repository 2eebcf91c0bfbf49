package checker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

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
