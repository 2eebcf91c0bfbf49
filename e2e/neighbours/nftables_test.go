package neighbours

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/machine"
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
		h.check("default policy", machine.Problem)
		h.load(nftablesConf(acceptTranslated))
		h.served("translated packets accepted", h.paths()...)
		h.check("translated packets accepted", machine.OK)
		h.undisturbed("reload", func() { h.load(nftablesConf(acceptTranslated)) }, h.paths()...)
		h.uninterrupted("reloads", func() {
			for range 20 {
				h.load(nftablesConf(acceptTranslated))
			}
		}, h.paths()...)
	})
}

// natChains hold the kernel's hooks for translation, which the last nat chain of
// a family takes along.
const natChains = `table inet nat { chain postrouting { type nat hook postrouting priority srcnat; policy accept; }; }
`

// Without table ownership, "flush ruleset" removes nftproxy's tables too. Until
// they are back, which the test delays, connections under way are translated only
// if another nat chain is there.
func TestNftablesConfWithoutOwner(t *testing.T) {
	finds(t, finding{Group: "Firewalls", Neighbour: "nftables.service", Version: packaged(t, "nftables"), Verdict: worksIf,
		Case: "the same with `--no-table-owner`, as on kernels before 6.9: nftproxy writes its tables again",
		Note: "the file has a nat chain, which may be empty: `" + strings.TrimSpace(natChains) + "`. Without one, connections under way " +
			"are not translated and can be reset until the tables are back. New connections may fail in that moment either way."})
	for _, chains := range []string{"", natChains} {
		t.Run(fmt.Sprintf("nat chain %t", chains != ""), func(t *testing.T) {
			h := newHost(t)
			h.flags = append(h.flags, "--no-table-owner")
			h.startProxy()
			flows := h.open(path{"outside to NodePort", h.Client, h.nodePort})
			h.proxy.Signal(t, syscall.SIGSTOP)
			h.load(nftablesConf(acceptTranslated) + chains)
			if _, err := h.try("nft", "list", "table", "ip", "nftproxy"); err == nil {
				t.Fatal("nftproxy's table was not removed")
			}
			if chains != "" {
				h.goOn("tables removed", flows)
			} else {
				h.broken("tables removed", flows)
			}
			h.proxy.Signal(t, syscall.SIGCONT)
			testbed.Eventually(t, func() error {
				_, err := h.try("nft", "list", "chain", "ip6", "nftproxy", "prerouting")
				return err
			})
			h.served("repaired", h.paths()...)
		})
	}
}
