package conntest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/host"
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
	d := Dial{Protocol: c.Protocol, To: c.To, Most: count, Refused: len(c.Expected.forwards()) == 0, Rejected: c.Expected.rejects(), Learns: learns, Wait: wait}
	if count > 0 {
		return d
	}
	if learns == Outcomes {
		d.Most = min(leastConnections, c.most())
		return d
	}
	d.Most = c.most()
	if c.Expected.AffinitySeconds == 0 {
		d.Endpoints = len(c.Expected.forwards())
	}
	return d
}

func (c *Case) most() int {
	most, _ := c.Expected.connections()
	return most
}

// JudgeDialled judges the connections of a peer.
func (c *Case) JudgeDialled(d *Dial, got *Dialled) *Result {
	if d.Learns == Outcomes && c.protocol == model.UDP && !d.Refused && !slices.ContainsFunc(got.Attempts, func(a Attempt) bool { return a.Outcome != Silent }) {
		c.Skip = "datagrams had no answer: a server need not answer, and which endpoint has got them is not known"
		return c.Judge(nil, false)
	}
	_, complete := c.Expected.connections()
	r := c.Judge(got.Attempts, complete && d.Learns != Outcomes && len(got.Attempts) == d.Most)
	r.Seconds = got.Seconds
	if got.Error != "" {
		r.State, r.Reasons = NotPassed, append(r.Reasons, "the client cannot test: "+got.Error)
	}
	return r
}

// run opens the connections.
func (d *Dial) run(ctx context.Context) (out Dialled) {
	start := time.Now()
	defer func() { out.Seconds = time.Since(start).Seconds() }()
	if len(d.Addresses) > 0 {
		out.Attempts = []Attempt{d.resolve(ctx)}
		return out
	}
	protocol, err := model.ParseProtocol(d.Protocol)
	if err != nil {
		return Dialled{Error: err.Error()}
	}
	c := &Case{To: d.To, protocol: protocol}
	if !d.Refused {
		c.Expected.Outcomes = []Expected{{Verdict: explain.Forward}}
	}
	if d.Rejected {
		c.Expected.Outcomes = append(c.Expected.Outcomes, Expected{Verdict: explain.Reject})
	}
	p := &Prober{Do: Here, Patience: d.Wait, Learns: d.Learns}
	wrong, met := 0, make(map[netip.AddrPort]bool)
	for len(out.Attempts) < d.Most && wrong < failures {
		a, err := p.Open(ctx, c)
		if err != nil {
			out.Error = err.Error()
			return out
		}
		out.Attempts = append(out.Attempts, a)
		if a.Outcome == Unsupported {
			break
		}
		if met[a.Endpoint] = true; (a.Outcome == Answered) == d.Refused {
			wrong++
		}
		if d.Endpoints > 0 && len(met) >= d.Endpoints && len(out.Attempts) >= leastConnections {
			break
		}
	}
	return out
}

const (
	sourcesPath = "/sources"
	dialPath    = "/dial"
	maxRequest  = 4 << 20 // bytes
)

func (p *Peer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+sourcesPath, func(w http.ResponseWriter, r *http.Request) {
		var to []netip.Addr
		if !readJSON(w, r, &to) {
			return
		}
		for i := range to {
			to[i] = host.RoutedSource(to[i])
		}
		_ = json.NewEncoder(w).Encode(to) // the client has gone
	})
	mux.HandleFunc("POST "+dialPath, func(w http.ResponseWriter, r *http.Request) {
		var list []Dial
		if !readJSON(w, r, &list) {
			return
		}
		DialAll(r.Context(), list, func(got *Dialled) { // a line of JSON each
			if json.NewEncoder(w).Encode(got) == nil { // else the client has gone
				_ = http.NewResponseController(w).Flush()
			}
		})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Token == "" || r.Header.Get("Authorization") != "Bearer "+p.Token {
			http.Error(w, "this peer belongs to a test with another token", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(into)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

// DialAll opens the connections of a list here, and calls each with what happened in the order in which it
// ends, one at a time.
func DialAll(ctx context.Context, list []Dial, each func(*Dialled)) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, parallel)
	for i := range list {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			got := list[i].run(ctx)
			got.Index = i
			mu.Lock()
			defer mu.Unlock()
			each(&got)
		})
	}
	wait.Wait()
}

// Remote is the way to a peer.
type Remote struct {
	Transport http.RoundTripper
	Token     string
}

// Sources returns the addresses that the peer would connect from; the zero Addr: it has no route.
func (r *Remote) Sources(ctx context.Context, to []netip.Addr) (from []netip.Addr, err error) {
	err = r.ask(ctx, sourcesPath, to, func(body io.Reader) error { return json.NewDecoder(body).Decode(&from) })
	if err == nil && len(from) != len(to) {
		err = fmt.Errorf("the peer answers for %d of %d addresses", len(from), len(to))
	}
	return from, err
}

// Dial has the peer open the connections of a list, and calls each with what happened.
func (r *Remote) Dial(ctx context.Context, list []Dial, each func(*Dialled)) error {
	return r.ask(ctx, dialPath, list, func(body io.Reader) error {
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
	answer, err := (&http.Client{Transport: r.Transport}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // as far as it can be read
		return fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return read(answer.Body)
}
