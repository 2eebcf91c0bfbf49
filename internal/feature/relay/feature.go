package relay

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/systemd"
	"github.com/nftproxy/nftproxy/internal/tcpproxy"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Only Services of files ask for a relay.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	return New(Config{
		Relay:  func(f model.Frontend) (model.Relayed, bool) { return n.Serving().Relay(f) },
		Closes: n.Config.Own.ConntrackTCPCleanup, Log: n.ObjectLog,
		Store: systemd.NewStore(), Connections: descriptors.Relay(len(n.Config.Node.Localhost()) > 0),
		Changed: func(names ...model.ServiceName) {
			if a := feature.Find[assessor](n.Features); a != nil {
				a.Synced(names...)
			}
		},
	})
}

// assessor finds out again whether Services have a usable server.
type assessor interface{ Synced(...model.ServiceName) }

// FollowSync implements [feature.Observer].
func (s *Server) FollowSync(f *feature.Sync) {
	if f.Err == nil {
		s.Update(f.Routes)
	}
}

// Problems implements [feature.Reporter].
func (s *Server) Problems(now time.Time) (out []model.Notice) {
	for _, f := range model.Families {
		if text := s.Failure(f); text != "" {
			out = append(out, feature.OfMachine(model.UnusableRelayPort, text)...)
		}
	}
	for _, f := range s.full(now) {
		out = append(out, model.Notice{Object: f.object, Reason: model.RelayFull, Message: f.text})
	}
	return out
}

type full struct {
	object model.Object // the machine, or the Service that relays the connections
	text   string
}

// full returns the limits that are reached.
func (s *Server) full(now time.Time) (out []full) {
	for _, f := range s.proxy.Full(now) {
		if f.At == (model.Frontend{}) {
			out = append(out, full{model.Machine(), describeFull(f, "") + "; nftproxy may need a higher limit of open files (LimitNOFILE)"})
		} else if r, ok := s.Relay(f.At); ok {
			text := describeFull(f, " through "+tcpproxy.AddressOf(f.At).String()) + "; limits: {connectionsPerClient} bounds what a client may have"
			out = append(out, full{r.Service.Object(), text})
		}
	}
	return out
}

func describeFull(f tcpproxy.Full, through string) string {
	client := f.Client.String()
	if f.Client.IsSingleIP() {
		client = f.Client.Addr().String()
	}
	return fmt.Sprintf("the limit of %d relayed connections%s is reached: a new one ends the one that is idle for the longest time, of the client with the most, now %s with %d",
		f.Connections, through, client, f.OfClient)
}

// FullOf returns the limits of connections to a Service that are reached, in words.
func (s *Server) FullOf(name model.ServiceName, now time.Time) (out []string) {
	for _, f := range s.full(now) {
		if f.object == name.Object() || f.object == model.Machine() {
			out = append(out, f.text)
		}
	}
	return out
}

// Collectors implements [feature.Counter].
func (s *Server) Collectors() []prometheus.Collector {
	return []prometheus.Collector{newCollector(s.Counts)}
}

func newCollector(counts func() tcpproxy.Counts) prometheus.Collector {
	open := scraped.Gauge("nftproxy_relay_connections", "Open connections to Balances that nftproxy relays.")
	total := scraped.Counter("nftproxy_relay_connections_total",
		"Connections to Balances that nftproxy relays by result: forwarded, or refused because it ended for a newer one (limit), of no server (no_server, dial_failed), a client that dialled the port of the relay itself (not_relayed) or has passed too many relays (loop), or a lack of resources (accept_failed).",
		"result")
	closed := scraped.Counter("nftproxy_relay_closed_total", "Relayed connections that nftproxy ended: for a newer one (limit), or without data (idle).", "reason")
	retried := scraped.Counter("nftproxy_relay_retries_total", "How often nftproxy tried another server for a relayed connection.")
	return scraped.New(func(out scraped.Values) error {
		now := counts()
		out.Add(open, float64(now.Connections))
		for result, n := range now.Total {
			out.Add(total, float64(n), result.String())
		}
		for reason, n := range now.Closed {
			out.Add(closed, float64(n), reason.String())
		}
		out.Add(retried, float64(now.Retried))
		return nil
	}, open, total, closed, retried)
}

// Leaves implements [feature.Leaver].
func (Kind) Leaves() []feature.Leftover {
	return []feature.Leftover{
		{
			Name: "relay port", What: "the listeners of relayed Balances and the sockets of their tables, in systemd ([relay](relay.md))",
			Mark:     "names that begin with `relay-`",
			Restored: "made at the start, if systemd has none",
			Removed:  "the last relayed Balance; `systemctl stop`",
			Writers:  []string{"internal/systemd/store.go", "internal/feature/relay/gate.go"},
		},
	}
}
