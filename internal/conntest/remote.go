package conntest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Dial is a case for a peer: what it connects to, and when it has seen enough.
type Dial struct {
	Protocol string         `json:"protocol"`
	To       netip.AddrPort `json:"to"`
	Most     int            `json:"most"` // connections
	// Endpoints is how many endpoints the connections should meet; zero: it opens all connections.
	Endpoints int `json:"endpoints,omitempty"`
	// Refused reports that no connection should be answered, so that the client need not wait long.
	Refused bool `json:"refused,omitempty"`
	// Rejected reports that the client should get an error.
	Rejected bool `json:"rejected,omitempty"`
	// HostName is resolved, until it has the addresses; empty: connections are opened.
	HostName  string        `json:"hostName,omitempty"`
	Addresses []netip.Addr  `json:"addresses,omitempty"`
	Learns    Knowledge     `json:"learns"`
	Wait      time.Duration `json:"wait"` // nanoseconds
}

// Dialled is what happened to the connections of a [Dial].
type Dialled struct {
	Index    int       `json:"index"` // in the list
	Attempts []Attempt `json:"attempts"`
	Seconds  float64   `json:"seconds"`
	Error    string    `json:"error,omitempty"` // of the test itself
}

// Dial returns the case for a peer. count is the number of connections; zero: as many as it takes to meet
// all endpoints.
func (c *Case) Dial(learns Knowledge, wait time.Duration, count int) Dial {
	if c.HostName != "" {
		return Dial{Protocol: c.Protocol, HostName: c.HostName, Addresses: c.Expected.Addresses}
	}
	forwards := c.Expected.Forwards()
	d := Dial{Protocol: c.Protocol, To: c.To, Most: count, Refused: len(forwards) == 0, Rejected: c.Expected.Rejects(), Learns: learns, Wait: wait}
	if count > 0 {
		return d
	}
	if d.Most, _ = c.Expected.Connections(); learns == Outcomes {
		d.Most = min(LeastConnections, d.Most)
	} else if c.Expected.AffinitySeconds == 0 {
		due := slices.DeleteFunc(slices.Clone(forwards), func(e Expected) bool { return e.Share == 0 })
		d.Endpoints = cmp.Or(len(due), len(forwards))
	}
	return d
}

// JudgeDialled judges the connections of a peer.
func (c *Case) JudgeDialled(d *Dial, got *Dialled) *Result {
	if d.Learns == Outcomes && c.Protocol == model.UDP.String() && !d.Refused && !slices.ContainsFunc(got.Attempts, func(a Attempt) bool { return a.Outcome != Silent }) {
		c.Skip = "datagrams had no answer: a server need not answer, and which endpoint has got them is not known"
		return c.Judge(nil, false)
	}
	_, complete := c.Expected.Connections()
	r := c.Judge(got.Attempts, complete && d.Endpoints > 0 && len(got.Attempts) == d.Most)
	r.Seconds = got.Seconds
	if got.Error != "" {
		r.State, r.Reasons = NotPassed, append(r.Reasons, "the client cannot test: "+got.Error)
	}
	return r
}

// Run opens the connections by open, or resolves the name. It ends when several are wrong: they cannot be as
// predicted then.
func (d *Dial) Run(ctx context.Context, isWrong func(*Attempt) bool, open func(context.Context) (Attempt, error)) (out Dialled) {
	start := time.Now()
	defer func() { out.Seconds = time.Since(start).Seconds() }()
	if len(d.Addresses) > 0 {
		out.Attempts = []Attempt{d.resolve(ctx)}
		return out
	}
	wrong, met := 0, make(map[netip.AddrPort]bool)
	for len(out.Attempts) < d.Most && wrong < Failures {
		a, err := open(ctx)
		if err != nil {
			out.Error = err.Error()
			return out
		}
		out.Attempts = append(out.Attempts, a)
		if a.Outcome == Unsupported {
			break
		}
		if a.Endpoint.IsValid() {
			met[a.Endpoint] = true
		}
		if isWrong(&a) {
			wrong++
		}
		if d.Endpoints > 0 && len(met) >= d.Endpoints && len(out.Attempts) >= LeastConnections {
			break
		}
	}
	return out
}

// Variables of the environment of a peer.
const (
	TokenVariable     = "NFTPROXY_PEER_TOKEN"
	AddressesVariable = "NFTPROXY_PEER_ADDRESSES"
)

// Paths at which peers answer.
const (
	SourcesPath = "/sources"
	DialPath    = "/dial"
)

// Remote is the way to a peer.
type Remote struct {
	Transport http.RoundTripper
	Token     string
}

// Close closes the connection.
func (r *Remote) Close() { r.client().CloseIdleConnections() }

func (r *Remote) client() *http.Client { return &http.Client{Transport: r.Transport} }

// Sources returns the addresses that the peer would connect from; the zero Addr: it has no route.
func (r *Remote) Sources(ctx context.Context, to []netip.Addr) (from []netip.Addr, err error) {
	err = r.ask(ctx, SourcesPath, to, func(body io.Reader) error { return json.NewDecoder(body).Decode(&from) })
	if err == nil && len(from) != len(to) {
		err = fmt.Errorf("the peer answers for %d of %d addresses", len(from), len(to))
	}
	return from, err
}

// Dial has the peer open the connections of a list, and calls each with what happened.
func (r *Remote) Dial(ctx context.Context, list []Dial, each func(*Dialled)) error {
	return r.ask(ctx, DialPath, list, func(body io.Reader) error {
		decoder := json.NewDecoder(body)
		for range list {
			got := new(Dialled)
			if err := decoder.Decode(got); err != nil {
				return fmt.Errorf("read the results: %w", err)
			}
			if got.Index < 0 || got.Index >= len(list) {
				return fmt.Errorf("the peer answers for number %d of %d", got.Index, len(list))
			}
			each(got)
		}
		return nil
	})
}

func (r *Remote) ask(ctx context.Context, path string, question any, read func(io.Reader) error) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+r.Token)
	answer, err := r.client().Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, MaxAnswer)) // as far as it can be read
		return fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return read(io.LimitReader(answer.Body, budget.Answer))
}
