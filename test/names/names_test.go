package names

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

const web = "listen: [\"203.0.113.10:80\", \"[2001:db8:100::10]:80\"]\nbackends: [app.example.test:8080]\ncheck: {tcp, interval: 200ms}\n"

// TestNames: every address of a name is a server in both families, and the rules follow the name:
// through a change (19.1, 19.2), the death of the DNS server, the end of the name (19.3), and a
// restart of nftproxy while DNS is down (19.5).
func TestNames(t *testing.T) {
	l := newLab(t)
	l.hosts(0, 1)
	l.startDNS()
	l.Balance("web", web)
	l.start()
	l.await(vip, "pod-0 pod-1")
	l.await(vip6, "pod-0 pod-1")

	began := time.Now()
	l.hosts(2)
	l.await(vip, "pod-2")
	fmt.Fprintf(t.Output(), "a change of a name with a TTL of 1 s is in the kernel after %v\n", time.Since(began).Round(time.Millisecond))
	l.await(vip6, "pod-2")

	l.hosts() // no such name
	l.Shows("NameFailing", "status", "--problems")
	l.await(vip, "pod-2")
	l.stopDNS()
	l.Shows("its last addresses stay", "status", "--problems")
	l.Shows("name app.example.test: ", "describe", "web")
	l.await(vip, "pod-2")

	l.Stop()
	if out := l.Run("cleanup"); strings.Contains(out, "error") {
		t.Fatal(out)
	}
	l.start()
	l.await(vip, "pod-2")
	l.await(vip6, "pod-2")
	l.hosts(1)
	l.startDNS()
	l.await(vip, "pod-1")
}

// TestViews: describe, explain, the plan, metrics and the log name the name and the address, and
// a plan beside the daemon has its addresses (19.8).
func TestViews(t *testing.T) {
	l := newLab(t)
	l.hosts(0)
	l.startDNS()
	l.Balance("web", web)
	l.start()
	l.await(vip, "pod-0")
	l.Shows("app.example.test", "describe", "web")
	l.Shows(l.Pods[0].IPv4.String()+":8080 (app.example.test)", "explain", "tcp", vip.String())
	l.Shows("No changes.", "diff", "-f", l.Path("conf.d"))
	l.Shows("app.example.test", "diff", "--from", l.Path("conf.d"), "-f", l.other("backends: [new.example.test:8080]"))
	other := l.other("backends: [app.example.test:8080, " + l.Pods[1].IPv4.String() + ":8080]")
	l.Shows("1 server added ("+l.Pods[1].IPv4.String()+":8080)", "diff", "-f", other)
	if log := l.Log.String(); !strings.Contains(log, "servers of a name changed") || !strings.Contains(log, l.Pods[0].IPv4.String()) {
		t.Errorf("log:\n%s", log)
	}
}

// other writes the Balance with another line in place of the one with servers.
func (l *lab) other(backends string) string {
	l.T.Helper()
	l.Write("other.yaml", "kind: Balance\nname: web\n"+strings.Replace(web, "backends: [app.example.test:8080]", backends, 1))
	return l.Path("other.yaml")
}

// TestOwnAddress: a name with an address of a Balance leads to its other addresses, and the
// status says why (19.6).
func TestOwnAddress(t *testing.T) {
	l := newLab(t)
	l.hosts()
	l.startDNS()
	l.Balance("front", "listen: 203.0.113.10:8080\nbackends: ["+l.Pods[0].IPv4.String()+"]\n")
	l.Balance("web", "listen: 203.0.113.11:80\nbackends: [own.example.test:8080]\n")
	l.start()
	at := netip.MustParseAddrPort("203.0.113.11:80")
	l.await(at, "pod-1")
	l.Shows("its address 203.0.113.10 is one that default/front serves on this machine", "status", "--problems")
}

// TestSRV: records give the port (19.4).
func TestSRV(t *testing.T) {
	l := newLab(t)
	l.hosts()
	l.startDNS()
	l.Balance("web", "listen: 203.0.113.10:80\nbackends: [_http._tcp.example.test]\n")
	l.start()
	l.await(vip, "pod-0")
	if text, err := os.ReadFile(l.Path("names.json")); err != nil || !strings.Contains(string(text), "_http._tcp.example.test") {
		t.Errorf("%s, %v", text, err)
	}
}
