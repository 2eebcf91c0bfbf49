// Package health answers over HTTP whether this node should get traffic: [Proxy] for
// the node as a whole, [Services] for each Service with external traffic policy Local.
package health

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Progress is the progress of syncs, which cover both families.
type Progress struct {
	Started  time.Time // of the first request for a sync
	LastSync time.Time // end of the last successful sync; zero: none
	Pending  time.Time // oldest request that no successful sync has served; zero: none (10.6)
}

// lastUpdate is the last success, or the start (10.9).
func (p Progress) lastUpdate() time.Time {
	if p.LastSync.IsZero() {
		return p.Started
	}
	return p.LastSync
}

// Proxy answers whether this node keeps its rules up to date, at /healthz and
// /livez. It is an HTTP handler, safe for concurrent use.
type Proxy struct {
	Families   []model.Family // to serve
	SyncPeriod time.Duration  // half the time that a request may wait (10.5)
	State      State
}

// State is what a [Proxy] answers from.
type State interface {
	Progress() Progress
	// Node returns the last known Node object, even if it is deleted; nil: it was
	// never seen (10.10, 10.11).
	Node() *model.Node
	// SourceUnusable returns since when the source cannot be used; zero: it can. The
	// rules still serve, so it does not change the status of an answer after the first
	// sync (10.26).
	SourceUnusable() time.Time
	// Answered is called with the path and the status code of each answer.
	Answered(path string, code int)
}

// proxyAnswer is the body of an answer, in kube-proxy's format (10.3).
type proxyAnswer struct {
	LastUpdated  time.Time                `json:"lastUpdated"`
	CurrentTime  time.Time                `json:"currentTime"`
	NodeEligible *bool                    `json:"nodeEligible,omitempty"`
	Healthy      bool                     `json:"healthy"`
	Status       map[string]familyHealthy `json:"status,omitempty"`
	Source       *sourceAnswer            `json:"source,omitempty"`
}

// sourceAnswer is in an answer while the source cannot be used.
type sourceAnswer struct {
	Usable bool      `json:"usable"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// reasonUnusable names no file and no object: any host that reaches the node can
// ask.
const (
	reasonUnusable = "the input cannot be used; the rules serve what was read before; \"nftproxy status\" on the node shows the error"
	reasonNoSync   = "the input cannot be used, and no rules were applied yet; those of an earlier run stay; \"nftproxy status\" on the node shows the error"
)

type familyHealthy struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// Healthy reports whether no request for a sync waits too long.
func (p *Proxy) Healthy() bool { return p.healthyAt(time.Now(), p.State.Progress()) }

func (p *Proxy) healthyAt(now time.Time, at Progress) bool {
	return at.Pending.IsZero() || now.Sub(at.Pending) < 2*p.SyncPeriod
}

// isEligible reports whether load balancers may use the node at all.
func (p *Proxy) isEligible() bool {
	node := p.State.Node()
	return node != nil && !node.Leaving
}

// ServeHTTP answers any method at the two paths (10.1).
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if path != "/healthz" && path != "/livez" {
		http.NotFound(w, r)
		return
	}
	now := time.Now() // with the monotonic clock, which UTC would remove
	at := p.State.Progress()
	a := proxyAnswer{
		LastUpdated: at.lastUpdate().UTC(), CurrentTime: now.UTC(), Healthy: p.healthyAt(now, at),
		Status: make(map[string]familyHealthy),
	}
	for _, f := range p.Families {
		a.Status[f.String()] = familyHealthy{a.LastUpdated, a.Healthy}
	}
	good := a.Healthy
	a.Source = p.sourceHealth(at)
	if path == "/healthz" {
		eligible := p.isEligible()
		a.NodeEligible, good = &eligible, good && eligible && (a.Source == nil || !at.LastSync.IsZero())
	}
	if good {
		a.LastUpdated = a.CurrentTime
	}
	body, _ := json.Marshal(a) // these types cannot fail
	code := statusCode(good)
	p.State.Answered(path, code)
	writeJSON(w, code, body)
}

func (p *Proxy) sourceHealth(at Progress) *sourceAnswer {
	since := p.State.SourceUnusable()
	if since.IsZero() {
		return nil
	}
	reason := reasonUnusable
	if at.LastSync.IsZero() {
		reason = reasonNoSync
	}
	return &sourceAnswer{Since: since.UTC(), Reason: reason}
}

// statusCode returns the status that load balancers look at.
func statusCode(good bool) int {
	if good {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// writeJSON writes JSON with the headers of 10.2.
func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails if the client has disconnected
}

// Programmed is whether the node has rules that follow the objects. Its texts name no object
// and no number, so that they change with the reason alone.
type Programmed struct {
	Yes             bool
	Reason, Message string
}

// Reasons of [Programmed].
const (
	RulesApplied   = "RulesApplied"
	NotSynced      = "NotSynced"
	ChangesPending = "ChangesPending"
)

// Programmed judges a progress by the time that /healthz and /livez allow for a sync (10.5).
// inherited reports whether the kernel had rules of an earlier run at the start: then nothing
// is known before the first sync, or before that time is over (10.28).
func (p *Proxy) Programmed(at Progress, inherited bool) (verdict Programmed, known bool) {
	healthy := p.healthyAt(time.Now(), at)
	switch {
	case !at.LastSync.IsZero() && healthy:
		return Programmed{true, RulesApplied, "the rules follow Services and EndpointSlices"}, true
	case !at.LastSync.IsZero():
		return Programmed{false, ChangesPending, `changes of Services or EndpointSlices wait for too long; "nftproxy status" on the node says why`}, true
	case inherited && healthy:
		return Programmed{}, false
	}
	return Programmed{false, NotSynced, `no rules were applied yet; "nftproxy status" on the node says why`}, true
}

// Balances answers whether a Balance has a usable server, at /healthz/NAMESPACE/NAME: 200 or 503,
// and 404 if there is none of this name.
type Balances struct{ Known KnownBalances }

// KnownBalances are safe for concurrent use.
type KnownBalances interface {
	// Serves reports whether a Balance has a usable server; known is false if there is none of this name.
	Serves(model.ServiceName) (usable, known bool)
}

// ServeHTTP answers any method, like [Proxy].
func (b *Balances) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	usable, known := b.Known.Serves(model.ServiceName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")})
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	code, text := http.StatusServiceUnavailable, "unusable\n"
	switch {
	case !known:
		code, text = http.StatusNotFound, "unknown\n"
	case usable:
		code, text = http.StatusOK, "usable\n"
	}
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // an error: the client is gone
}
