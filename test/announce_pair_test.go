package test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// pair is two machines with the same file, a client and a server, all on one bridge.
type pair struct {
	*testing.T
	bridge         *netlab.Namespace
	first, second  *announcer
	client, server *netlab.Host
	conf           string
}

// announcer is a machine that announces the addresses of the pair.
type announcer struct {
	*netlab.Host
	pair   *pair
	mac    string
	daemon *exec.Cmd
	log    netlab.LogBuffer
}

var (
	pairAddresses = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("10.9.0.100"), model.IPv6: netip.MustParseAddr("fd00:9::100")}
	both          = "10.9.0.100 fd00:9::100"
)

// newPair makes the machines; check is what follows in the Balance.
func newPair(t *testing.T, check string) *pair {
	t.Helper()
	t.Parallel()
	p := &pair{T: t, bridge: netlab.TestNamespace(t), conf: filepath.Join(t.TempDir(), "web.yaml")}
	p.bridge.TestScript(t, "ip link add sw type bridge; ip link set sw up")
	p.first, p.second = &announcer{Host: p.host("first", 1), pair: p, mac: "02:00:00:00:00:01"}, &announcer{Host: p.host("second", 2), pair: p, mac: "02:00:00:00:00:02"}
	p.client, p.server = p.host("client", 3), p.host("server", 4)
	echo, err := p.server.Echo(echoPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	text := fmt.Sprintf("kind: Balance\nname: web\nlisten: [\"10.9.0.100:80\", \"[fd00:9::100]:80\"]\nbackends: [\"%s:%d\", \"[%s]:%d\"]\nannounce: eth0\n%s\n",
		p.server.IPv4, echoPort, p.server.IPv6, echoPort, check)
	if err := os.WriteFile(p.conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

// host makes a machine with the interface eth0 at the bridge.
func (p *pair) host(name string, n int) *netlab.Host {
	p.Helper()
	h := &netlab.Host{
		Namespace: netlab.TestNamespace(p.T), Name: name,
		IPv4: netip.MustParseAddr(fmt.Sprintf("10.9.0.%d", n)), IPv6: netip.MustParseAddr(fmt.Sprintf("fd00:9::%d", n)),
	}
	// A process of the namespace says which one it is.
	sleeper := exec.Command("sleep", "infinity")
	if err := h.Start(sleeper); err != nil {
		p.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	p.bridge.TestScript(p.T, `ip link add "$1" type veth peer name eth0 netns "$2"; ip link set "$1" master sw up`, name, fmt.Sprint(sleeper.Process.Pid))
	h.TestScript(p.T, `ip link set lo up; ip link set eth0 address "02:00:00:00:00:0$1"; ip link set eth0 up; ip address add "$2/24" dev eth0; ip address add "$3/64" dev eth0 nodad
cd /proc/sys/net; echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding`, fmt.Sprint(n), h.IPv4.String(), h.IPv6.String())
	return h
}

// start starts nftproxy.
func (a *announcer) start() {
	a.pair.Helper()
	a.daemon = exec.Command(binary, "run", "-f", a.pair.conf, "--healthz-bind-address", "127.0.0.1:7016")
	a.daemon.Stderr = &a.log
	if err := a.Start(a.daemon); err != nil {
		a.pair.Fatal(err)
	}
	a.pair.Cleanup(func() {
		a.kill()
		if a.pair.Failed() {
			fmt.Fprintf(a.pair.Output(), "%s:\n%s", a.Name, a.log.String())
		}
	})
}

func (a *announcer) kill() {
	if a.daemon.ProcessState == nil {
		_ = a.daemon.Process.Kill()
		_ = a.daemon.Wait() // the error is the signal
	}
}

// has returns the addresses of the pair that a machine may use.
func (a *announcer) has() string {
	out, _ := a.Output("sh", "-c", "ip -o address show dev eth0 -tentative -dadfailed | grep -oE '10.9.0.100/32|fd00:9::100/128' | cut -d/ -f1 | sort | tr '\\n' ' '")
	return strings.TrimSpace(out)
}

// gets waits until a machine has both addresses, and returns how long that took.
func (a *announcer) gets() time.Duration {
	a.pair.Helper()
	begin := time.Now()
	eventually(a.pair.T, func() error {
		if has := a.has(); has != both {
			return fmt.Errorf("%s has %q", a.Name, has)
		}
		return nil
	})
	return time.Since(begin)
}

// packets returns the packets of a named counter.
func (a *announcer) packets(counter ...string) (n int) {
	a.pair.Helper()
	out, err := a.Output("nft", append([]string{"list", "counter"}, counter...)...)
	if err != nil {
		a.pair.Fatal(err)
	}
	_, after, _ := strings.Cut(out, "packets ")
	_, _ = fmt.Sscan(after, &n) // what is no number is none
	return n
}

// says waits for what "status" says.
func (a *announcer) says(texts ...string) {
	a.pair.Helper()
	eventually(a.pair.T, func() error {
		out, _ := a.Output(binary, "status")
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return fmt.Errorf("%s does not say %q: %s", a.Name, text, out)
			}
		}
		return nil
	})
}

// health waits for the code of the page about the Balance.
func (a *announcer) health(code int) {
	a.pair.Helper()
	eventually(a.pair.T, func() error {
		out, err := a.Output("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:7016/healthz/default/web")
		if out != fmt.Sprint(code) {
			return fmt.Errorf("/healthz of %s: %s, %v, want %d", a.Name, out, err, code)
		}
		return nil
	})
}

// serves asks once in each family, and returns the machines that have masqueraded the client.
func (p *pair) serves(wait time.Duration) string {
	var by []string
	for _, f := range model.Families {
		answer, err := p.client.Ask("tcp", netip.AddrPortFrom(pairAddresses[f], 80), wait)
		switch {
		case err != nil:
			by = append(by, "none")
		case answer.Client == p.first.Address(f):
			by = append(by, "first")
		default:
			by = append(by, "second")
		}
	}
	return strings.Join(by, " ")
}

// served waits until a machine serves both families.
func (p *pair) served(by *announcer) {
	p.Helper()
	eventually(p.T, func() error {
		if got := p.serves(silence); got != by.Name+" "+by.Name {
			return fmt.Errorf("served by %s, want %s", got, by.Name)
		}
		return nil
	})
}

// TestPairOfMachines: 10.33. Of two machines with the same addresses, the first one serves, and the second one says who has
// them, without any effect on the first. It takes over when the first one has no server, and not when nftproxy is
// killed there.
func TestPairOfMachines(t *testing.T) {
	p := newPair(t, "check: {tcp, interval: 200ms, rise: 1, fall: 2}")
	p.first.start()
	p.first.gets()
	p.served(p.first)
	p.first.health(http.StatusOK)
	p.second.start()
	p.second.says(notAdded(p.first)...)
	p.second.health(http.StatusServiceUnavailable)

	// Three attempts of the second machine change nothing.
	p.first.TestScript(t, `nft "table arp count { counter probes { }; chain input { type filter hook input priority 0; arp saddr ip 0.0.0.0 counter name probes; }; }"`)
	p.second.TestScript(t, `nft "table inet count { counter taken { }; chain pre { type filter hook prerouting priority -300; ip daddr 10.9.0.100 counter name taken; ip6 daddr fd00:9::100 counter name taken; }; }"`)
	for p.first.packets("arp", "count", "probes") < 3 {
		if by := p.serves(patience); by != "first first" {
			t.Fatalf("served by %s while the second machine asks for the addresses", by)
		}
		await.Pace(nil, 20*time.Millisecond)
	}
	if n := p.second.packets("inet", "count", "taken"); n > 0 {
		t.Errorf("the second machine has got %d packets to the addresses", n)
	}
	if log := p.first.log.String(); strings.Contains(log, "another machine") || strings.Contains(log, "withdrawn") {
		t.Errorf("the first machine: %s", log)
	}
	p.first.kill()
	p.served(p.first)
	p.first.start()
	p.served(p.first)
	if has := p.second.has(); has != "" {
		t.Errorf("the second machine has %s", has)
	}

	const prohibit = `for a in "$2/32" "$3/128"; do ip route "$1" prohibit $a; done`
	p.first.TestScript(t, prohibit, "add", p.server.IPv4.String(), p.server.IPv6.String())
	fmt.Fprintf(t.Output(), "without a server on the first machine, the second one has the addresses after %s\n", p.second.gets())
	p.served(p.second)
	if p.second.packets("inet", "count", "taken") == 0 {
		t.Error("no packet is counted that the second machine gets")
	}
	p.first.says("CheckFailing")
	p.first.health(http.StatusServiceUnavailable)
	p.first.TestScript(t, prohibit, "del", p.server.IPv4.String(), p.server.IPv6.String())
	p.first.says(notAdded(p.second)...)
	p.served(p.second)
}

// TestPairOfMachinesCutOff: 10.33. A machine takes over from one that is cut off. When that returns, and no health check has
// had it give the addresses up, both have them and say so, until it starts again.
func TestPairOfMachinesCutOff(t *testing.T) {
	p := newPair(t, "")
	p.first.start()
	p.first.gets()
	p.second.start()
	p.second.says(notAdded(p.first)...)
	p.bridge.TestScript(t, "ip link set first down")
	fmt.Fprintf(t.Output(), "the second machine has the addresses after %s\n", p.second.gets())
	p.served(p.second)
	p.second.health(http.StatusOK)
	p.first.health(http.StatusServiceUnavailable)
	p.first.says("NotAnnounced", "no carrier")

	p.bridge.TestScript(t, "ip link set first up")
	for _, a := range []*announcer{p.first, p.second} {
		a.says("AddressInUse", "another machine claims it")
	}
	p.first.kill()
	p.first.TestScript(t, "for a in 10.9.0.100/32 fd00:9::100/128; do ip address del $a dev eth0; done; nft flush ruleset") // as after a reboot
	p.first.start()
	p.first.says(notAdded(p.second)...)
	p.served(p.second)
}

// notAdded returns what a machine says about the addresses of another one.
func notAdded(other *announcer) []string {
	of := func(f model.Family) string {
		return fmt.Sprintf("%s on interface eth0: not added, because another machine has it (MAC %s)", pairAddresses[f], other.mac)
	}
	return []string{"AddressInUse", of(model.IPv4), of(model.IPv6)}
}

// TestPairStartsTogether: two machines that start at the same time do not both add an address.
func TestPairStartsTogether(t *testing.T) {
	p := newPair(t, "")
	var all sync.WaitGroup
	for _, a := range []*announcer{p.first, p.second} {
		all.Go(a.start)
	}
	all.Wait()
	eventually(t, func() error {
		if has := strings.TrimSpace(p.first.has() + " " + p.second.has()); len(strings.Fields(has)) != 2 {
			return fmt.Errorf("the first machine has %q, the second one %q", p.first.has(), p.second.has())
		}
		return nil
	})
	if strings.Contains(p.second.has(), pairAddresses[model.IPv4].String()) && strings.Contains(p.first.has(), pairAddresses[model.IPv4].String()) {
		t.Error("both have the IPv4 address")
	}
	if by := p.serves(patience); strings.Contains(by, "none") {
		t.Errorf("served by %s", by)
	}
}
