package test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/preflight"
)

// dial opens connections to a Service over both families, one after the other, until stop is
// called. It has no expectations about answers.
func (w *ward) dial(s service) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, family := range model.Families {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = w.Client.Ask("tcp", s.clusterIP(family), silence)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// tracks reports whether the kernel adds connections to the packets that rules log. It has the
// kernel load all modules, which takes an emulated machine longer than a daemon may take to start.
func (w *ward) tracks() (tracks bool) {
	w.t.Helper()
	err := w.Node.Do(func() error {
		if _, err := preflight.Check(model.Families[:], true); err != nil {
			return err
		}
		r, err := nflog.Open(9)
		if err != nil {
			return err
		}
		tracks = r.Tracks()
		return r.Close()
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return tracks
}

// TestFailuresAreNamed: 16.7, 17.11 to 17.13. Without a health check, status names endpoints that
// refuse connections or do not answer, until they answer again.
func TestFailuresAreNamed(t *testing.T) {
	w := newWard(t, 2)
	w.flags = slices.Concat(clusterCIDR, []string{"--observe=failures", "--observe-group=9"})
	web := service{Name: "web", N: 1, Pods: w.Pods}
	w.write(web)
	tracks := w.tracks()
	w.start()
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	if !tracks { // 17.13
		w.has([]string{"status"}, "NotObserved: ", "the kernel lacks CONFIG_NETFILTER_NETLINK_GLUE_CT")
		return
	}
	w.answered(web, w.Pods...)
	stop := w.dial(web)
	defer func() { stop() }()
	w.page("/metrics", "\nnftproxy_sampled_connections_total{namespace=\"default\",outcome=\"answered\",service=\"web\"} ")
	w.has([]string{"status"}, "healthy\n")

	w.kill(w.Pods...)
	w.has([]string{"status"}, "ConnectionsRefused: endpoints refuse connections: nothing listens on their port",
		"Service default/web: 4 endpoints, "+w.Pods[0].IPv4.String()+":8080 and others, refused ", " sampled connections in the last minute")
	w.has([]string{"describe", "web"}, "FAILED SAMPLES", " refused") // 17.15
	w.revive(w.Pods...)
	w.has([]string{"status"}, "healthy\n")

	w.silence(w.Pods[1])
	w.has([]string{"status"}, "ConnectionsUnanswered: endpoints do not answer: ",
		"Service default/web: 2 endpoints, "+w.Pods[1].IPv4.String()+":8080 and others, did not answer ")
	for _, outcome := range []string{"refused", "unanswered"} {
		w.page("/metrics", "\nnftproxy_sampled_connections_total{namespace=\"default\",outcome=\""+outcome+"\",service=\"web\"} ")
	}
}
