package neighbours

import (
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
)

// nftablesConf is an /etc/nftables.conf as the service of Debian loads it at its
// start and reload: it removes all tables first. A rule may accept more than what
// belongs to connections under way.
func nftablesConf(forward string) string {
	return `flush ruleset
table inet filter {
	chain input { type filter hook input priority filter; policy accept; }
	chain forward {
		type filter hook forward priority filter; policy drop
		ct state established,related accept
		` + forward + `
	}
	chain output { type filter hook output priority filter; policy accept; }
}
`
}

const acceptTranslated = "ct status dnat accept"

func TestNftablesConf(t *testing.T) {
	finds(t, finding{Group: "Firewalls", Neighbour: "nftables.service", Version: packaged(t, "nftables"), Verdict: worksIf,
		Case: "an `/etc/nftables.conf` with `flush ruleset` and a chain forward that drops, loaded again under load",
		Note: "the chain has `" + acceptTranslated + "`. From kernel 6.9 on, `flush ruleset` leaves nftproxy's tables alone."})
	inEitherOrder(t, func(h *host, start func(func())) {
		start(func() { h.load(nftablesConf("")) })
		h.unserved("default policy", without(h.paths(), path.fromNode)...)
		h.load(nftablesConf(acceptTranslated))
		h.served("translated packets accepted", h.paths()...)
		h.undisturbed("reload", func() { h.load(nftablesConf(acceptTranslated)) }, h.paths()...)
		h.uninterrupted("reloads", func() {
			for range 20 {
				h.load(nftablesConf(acceptTranslated))
			}
		}, h.paths()...)
	})
}

// Without table ownership, "flush ruleset" removes nftproxy's tables too.
func TestNftablesConfWithoutOwner(t *testing.T) {
	finds(t, finding{Group: "Firewalls", Neighbour: "nftables.service", Version: packaged(t, "nftables"), Verdict: worksIf,
		Case: "the same with `--no-table-owner`, as on kernels before 6.9",
		Note: "new connections may fail for the moment until nftproxy has written its tables again. Those under way continue."})
	h := newHost(t)
	h.flags = append(h.flags, "--no-table-owner")
	h.startProxy()
	rules, flows := h.ownRules(), h.open(h.paths()...)
	h.load(nftablesConf(acceptTranslated))
	h.goOn("reload", flows)
	netlab.Eventually(t, 6*testbed.Strict, func() error {
		_, err := h.Client.Ask("udp", h.nodePort(model.IPv6), testbed.Silence)
		return err
	})
	h.served("repaired", h.paths()...)
	if h.ownRules() == rules {
		t.Error("nftproxy's tables were not removed")
	}
}
