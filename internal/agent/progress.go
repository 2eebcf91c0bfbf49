package agent

import (
	"iter"
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// slowRead is how long the first read of the source may take without a log line.
const slowRead = time.Second

// firstLoad reads the source, and logs that if it took long: many files do.
func (a *Agent) firstLoad() (*model.Update, error) {
	start := time.Now()
	u, err := a.Load()
	if took := time.Since(start); err == nil && took >= slowRead {
		a.Log.Info("objects read", "services", len(u.Services), "duration", took.Round(time.Millisecond))
	}
	return u, err
}

// loadPace is the time between two log lines about a load (12.68).
const loadPace = 5 * time.Second

// paceParts calls beat for each part of a load, and logs now and then how many frontends
// the parts have so far, of how many: total is called for that alone.
func paceParts(parts iter.Seq[nft.Delta], total func() int, beat func(), log *slog.Logger) iter.Seq[nft.Delta] {
	return func(yield func(nft.Delta) bool) {
		frontends, last := 0, time.Now()
		for part := range parts {
			beat()
			if now := time.Now(); now.Sub(last) >= loadPace {
				log.Info("loading rules", "frontends", frontends, "of", total())
				last = now
			}
			for _, t := range part.After.Tables {
				if s := t.Set(nft.ServicesMap); s != nil {
					frontends += len(s.Elements)
				}
			}
			if !yield(part) {
				return
			}
		}
	}
}

func frontendsOf(states map[model.ServiceName]model.ServiceState) (n int) {
	for _, s := range states {
		if s.Service == nil {
			continue
		}
		addresses := len(s.Service.ClusterIPs)
		if e := s.Service.External; e != nil {
			addresses += len(e.LoadBalancerIPs) + len(e.ExternalIPs)
		}
		n += addresses * len(s.Service.Ports)
	}
	return n
}
