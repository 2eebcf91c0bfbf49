package daemon

import (
	"iter"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// monitored is the machine of the daemon, for [machine.Monitor].
type monitored struct{ *work }

// Forward implements [machine.Forwarder].
func (w monitored) Forward(f model.Family) ([]host.Change, error) {
	return host.System("").SetForwarding(f, w.left.Setting, w.Log)
}

// Use returns the use of this machine, once the rules are active (11.20).
func (w monitored) Use() (machine.Use, bool) {
	if w.agent.State().LastSync.IsZero() {
		return machine.Use{}, false
	}
	return machine.Use{
		Cluster: w.Cluster != nil, BesideAnother: w.node.BesideAnother, MasqueradeAll: w.node.MasqueradeAll, MasqueradeFrom: w.node.MasqueradeAddresses(w.Source.Node()),
		Families: w.node.Families, PodRanges: w.node.ClusterCIDRs, Endpoints: w.endpoints(false), Relayed: w.endpoints(true), Addresses: w.addresses,
		Ranges: w.ranges(), Words: w.Words(),
	}, true
}

// IsBalance implements [report.Words].
func (w *work) IsBalance(name model.ServiceName) bool { return w.agent.IsBalance(name) }

// Words implements [report.Words]. Files that have nothing may get both.
func (w *work) Words() words.Vocabulary {
	in, empty := w.agent.Words()
	if empty && w.Cluster == nil {
		return words.Mixed
	}
	return in
}

// ranges returns the ranges of load balancers, and of what else may have addresses in them.
func (w *work) ranges() machine.Ranges {
	out := machine.Ranges{LoadBalancers: w.node.LoadBalancerCIDRs, Services: w.agent.ServiceCIDRs()}
	if n := w.Source.Node(); n != nil {
		out.Pods = n.PodCIDRs
	}
	return out
}

// addresses yields the addresses of Services that clients dial.
func (w *work) addresses(yield func(netip.Addr) bool) {
	for r := range w.agent.Routes {
		announced := r.Service.Extra().Announce != "" // [vitals.Actor.Problems] has what is wrong with those
		if a := r.Frontend.Address; r.Kind != model.NodePort && !announced && !yield(a) {
			return
		}
	}
}

// endpoints returns the addresses of endpoints that take connections, some of them several
// times: of relays, or of all other frontends.
func (w *work) endpoints(relayed bool) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for r := range w.agent.Routes {
			if r.Relayed() != relayed {
				continue
			}
			for _, d := range []model.Decision{r.Inside(), r.Outside()} { // of all routes, so not in a list of both
				for _, e := range d.Endpoints {
					if !yield(e.Address().Addr()) {
						return
					}
				}
			}
		}
	}
}

// Problems implements [report.Facts].
func (w *work) Problems() (out []model.Notice) {
	for _, f := range w.machine.Problems() {
		out = append(out, f.Notice())
	}
	now := time.Now()
	for r := range featuresOf[feature.Reporter](w.Features) {
		out = append(out, r.Problems(now)...)
	}
	return out
}

// Notes implements [report.Facts]: it returns what features note, possible obstacles to serving Services, and the settings that
// this process has changed.
func (w *work) Notes() (out []model.Notice) {
	for n := range featuresOf[feature.Noter](w.Features) {
		out = append(out, n.Notes()...)
	}
	for _, f := range w.machine.Warnings() {
		out = append(out, f.Notice())
	}
	for _, c := range w.machine.Changed() {
		out = append(out, feature.OfMachine(model.SettingChanged, c.String()+" (--manage-sysctl)")...)
	}
	return out
}

// checkMachine looks for such problems after the first sync and after every comparison
// with the kernel, which is hourly; readers of the status and of metrics do so in between.
// A change of endpoints may need settings that nftproxy manages.
func (w *work) checkMachine(s *agent.Sync) {
	switch {
	case s.Err != nil:
	case s.Compared || s.Cause == agent.Start:
		go w.machine.Check()
		if s.Cause != agent.Start { // which has set them
			w.restoreConntrack()
		}
	default:
		w.machine.Manage()
	}
}

// restoreConntrack sets what connection tracking needs again, if another program has changed it (9.13).
func (w *work) restoreConntrack() {
	err := host.System("").SetConntrack(conntrackOf(w.Config), w.left.Setting, w.Log)
	if err != nil && w.unset != err.Error() {
		w.unset = err.Error()
		w.Log.Error("settings of connection tracking were changed by another program, and cannot be set again", "error", err)
	}
	if err == nil {
		w.unset = ""
	}
}

// conntrackOf returns the settings of connection tracking of a configuration.
func conntrackOf(c *config.Config) host.Conntrack {
	k := &c.Kube.Conntrack
	return host.Conntrack{
		MaxPerCore:            int(*k.MaxPerCore),
		Min:                   int(*k.Min),
		TCPEstablishedTimeout: k.TCPEstablishedTimeout.Duration,
		TCPCloseWaitTimeout:   k.TCPCloseWaitTimeout.Duration,
		UDPTimeout:            k.UDPTimeout.Duration,
		UDPStreamTimeout:      k.UDPStreamTimeout.Duration,
		TCPBeLiberal:          k.TCPBeLiberal,
	}
}
