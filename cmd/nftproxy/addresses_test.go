package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// addressLab is a node with a server, a client on its link, and files that announce addresses there.
type addressLab struct {
	*testing.T
	*netlab.Lab
	link, from string // interfaces of the node and the client
	conf       string
	runtime    string
	proxy      *process
}

func newAddressLab(t *testing.T) *addressLab {
	t.Helper()
	l := &addressLab{T: t, Lab: netlab.TestLab(t, 1), runtime: t.TempDir()}
	route := func(h *netlab.Host, to string) string {
		return strings.TrimSpace(l.says(h, "ip -o route get "+to+" | sed 's/.* dev \\([^ ]*\\).*/\\1/'"))
	}
	l.link, l.from = route(l.Node, l.Client.IPv4.String()), route(l.Client, l.Node.IPv4.String())
	for _, h := range []*netlab.Host{l.Node, l.Client} {
		link := l.link
		if h == l.Client {
			link = l.from
		}
		h.TestScript(t, `cd "/proc/sys/net/ipv6/conf/$1"; echo 1 >accept_dad; echo 1 >dad_transmits`, link)
	}
	(&server{pod: l.Pods[0]}).set(t, true)
	l.conf = writeFile(t, "")
	return l
}

func (l *addressLab) says(h *netlab.Host, script string) string {
	l.Helper()
	out, err := h.Output("sh", "-c", script)
	if err != nil {
		l.Fatal(err)
	}
	return out
}

// write replaces the files: Balances with these addresses, on the link.
func (l *addressLab) write(addresses ...string) {
	l.Helper()
	text := ""
	for i, a := range addresses {
		backend := l.Pods[0].IPv4.String()
		if strings.Contains(a, ":") {
			a, backend = "["+a+"]", "["+l.Pods[0].IPv6.String()+"]"
		}
		text += fmt.Sprintf("---\nkind: Balance\nname: web%d\nlisten: \"%s:80\"\nbackends: [\"%s:8081\"]\nannounce: %s\n", i, a, backend, l.link)
	}
	text += fmt.Sprintf("---\nkind: Balance\nname: other\nlisten: 203.0.113.99:80\nbackends: [\"%s:8081\"]\n", l.Pods[0].IPv4)
	if err := os.WriteFile(l.conf, []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
}

func (l *addressLab) start() {
	l.Helper()
	l.proxy = startWith(l.T, l.Node.Namespace, asNftproxy(l.T, "run", "-f", l.conf, "--healthz-bind-address", "127.0.0.1:7015"), "RUNTIME_DIRECTORY="+l.runtime)
}

// end ends the process with a signal.
func (l *addressLab) end() {
	l.Helper()
	if err := l.proxy.Process.Signal(syscall.SIGTERM); err != nil {
		l.Fatal(err)
	}
	l.proxy.ends(l.T, 0)
}

// has returns the announced addresses of the node, usable or not.
func (l *addressLab) has() string {
	l.Helper()
	out := l.says(l.Node, "ip -o address show dev "+l.link+" | sed -n 's,.*inet6* \\(203.0.113[^/]*\\|2001:db8:9:[^/]*\\)/.*,\\1,p' | sort | tr '\\n' ' '")
	return strings.TrimSpace(out)
}

func (l *addressLab) want(what, has string) {
	l.Helper()
	netlab.Eventually(l.T, 40*time.Second, func() error {
		if got := l.has(); got != has {
			return fmt.Errorf("%s: %q, want %q; log:\n%s", what, got, has, &l.proxy.log)
		}
		return nil
	})
}

// answers waits for a code of the page of the first Balance.
func (l *addressLab) answers(what string, code int) {
	l.Helper()
	eventually(l.T, fmt.Sprintf("%s: code %d", what, code), func() bool {
		got, _ := get(l.T, l.Node.Namespace, "http://127.0.0.1:7015/healthz/default/web0")
		return got == code
	})
}

// status waits for a problem.
func (l *addressLab) status(problem string) {
	l.Helper()
	netlab.Eventually(l.T, 20*time.Second, func() error {
		if r := ask(l.T, l.Node.Namespace, "status"); !strings.Contains(r.stdout, problem) {
			return fmt.Errorf("status does not say %q: %+v", problem, r)
		}
		return nil
	})
}

const announced, announced6, moved = "203.0.113.10", "2001:db8:9::10", "203.0.113.20"

// TestAnnouncedAfterRestart: 10.33. Addresses that no Balance wants any more after an edit while nftproxy
// was down are removed at the start, however it ended, and by "cleanup".
func TestAnnouncedAfterRestart(t *testing.T) {
	l := newAddressLab(t)
	l.write(announced, announced6)
	l.start()
	l.want("at the start", announced6+" "+announced)
	l.proxy.kill()
	l.write(moved, announced6)
	l.start()
	l.want("kill -9, then an edit", announced6+" "+moved)
	l.end()
	if has := l.has(); has != announced6+" "+moved {
		t.Errorf("while nftproxy is down: %s", has)
	}
	l.write()
	l.start()
	l.want("SIGTERM, then the Balances are gone", "")
	l.end()
	l.write(announced, announced6)
	l.start()
	l.want("they are back", announced6+" "+announced)
	l.end()
	if r := in(t, l.Node.Namespace, "cleanup"); r.code != 0 || !strings.Contains(r.stdout, "removed address "+announced+" from interface "+l.link) {
		t.Errorf("cleanup: %+v", r)
	}
	l.want("after cleanup", "")
}

// TestAnnouncedReturns: 10.33. Addresses that others take off the interface are back, also after the
// interface was down or gone, and the Balance answers as long as its address is there.
func TestAnnouncedReturns(t *testing.T) {
	l := newAddressLab(t)
	l.Node.TestScript(t, `ip link add vip0 type veth peer name vip1; ip link set vip0 up; ip link set vip1 up`)
	l.link = "vip0"
	both := announced6 + " " + announced
	l.write(announced, announced6)
	l.start()
	l.want("at the start", both)
	l.answers("at the start", http.StatusOK)
	for range 3 {
		l.Node.TestScript(t, `ip link set vip0 down; ip link set vip0 up`)
		l.want("after a flap", both)
	}
	l.Node.TestScript(t, `ip address del 203.0.113.10/32 dev vip0`)
	l.want("after the address is deleted", both)
	l.Node.TestScript(t, `ip link delete vip0`)
	l.answers("without the interface", http.StatusServiceUnavailable)
	l.status("NotAnnounced")
	l.Node.TestScript(t, `ip link add vip0 type veth peer name vip1; ip link set vip0 up; ip link set vip1 up`)
	l.want("with a new interface", both)
	l.answers("with a new interface", http.StatusOK)
}

// TestAnnouncedIsShown: "status" lists the addresses, and "diff" what nftproxy would change: nothing beside one that
// runs with the same files; after an edit or a fault, what is missing and what no Balance wants.
func TestAnnouncedIsShown(t *testing.T) {
	l := newAddressLab(t)
	l.write(announced, announced6)
	l.start()
	l.want("at the start", announced6+" "+announced)
	l.status("announces  " + announced + " on " + l.link + "\n")
	diff := func(code int, want string) {
		t.Helper()
		p := startWith(t, l.Node.Namespace, asNftproxy(t, "diff", "-f", l.conf), "RUNTIME_DIRECTORY="+l.runtime)
		_ = p.Wait() // the code says it
		if got := p.output.String(); p.ProcessState.ExitCode() != code || !strings.HasPrefix(got, want) {
			t.Errorf("diff: code %d, want %d and %q:\n%s%s", p.ProcessState.ExitCode(), code, want, got, &p.log)
		}
	}
	diff(0, "No changes.\n")
	l.end()
	l.Node.TestScript(t, `ip address del "$2/32" dev "$1"`, l.link, announced)
	diff(1, "+ address "+announced+" on "+l.link+"\nnftproxy run changes these addresses of interfaces.\n")
	l.write(moved)
	diff(1, fmt.Sprintf("+ address %s on %s\n- address %s on %s\n", moved, l.link, announced6, l.link))
}

// TestAnnouncedWithoutPackets: 10.33. With the capabilities of the systemd unit, addresses are added and not announced, and
// "status" has the command that grants what is missing: it works as printed.
func TestAnnouncedWithoutPackets(t *testing.T) {
	l := newAddressLab(t)
	l.write(announced, announced6)
	l.proxy = startConfined(t, l.Node.Namespace, netAdmin, "run", "-f", l.conf)
	l.want("without CAP_NET_RAW", announced6+" "+announced)
	l.status("NotAnnounced")
	var status api.Status
	if r := ask(t, l.Node.Namespace, "status", "-o", "json"); json.Unmarshal([]byte(r.stdout), &status) != nil {
		t.Fatalf("status: %+v", r)
	}
	var command string
	for _, problem := range status.Problems {
		if _, after, found := strings.Cut(problem.Message, "grant CAP_NET_RAW: "); found && problem.Reason == model.NotAnnounced {
			command = after
		}
	}
	if command == "" {
		t.Fatalf("there is no command: %+v", status.Problems)
	}
	dir := t.TempDir()
	fake := "#!/bin/sh\necho systemctl $* >>" + dir + "/calls\n"
	if err := os.WriteFile(dir+"/systemctl", []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	got := l.says(l.Node, "PATH="+dir+":$PATH; "+strings.ReplaceAll(command, "/etc/systemd", dir)+"; cat "+dir+"/calls "+dir+"/system/nftproxy.service.d/announce.conf")
	want := "systemctl daemon-reload\nsystemctl restart nftproxy\n[Service]\nCapabilityBoundingSet=CAP_NET_RAW\nRestrictAddressFamilies=AF_PACKET\n"
	if got != want {
		t.Errorf("%s makes\n%s\nwant\n%s", command, got, want)
	}
}

// TestAnnouncedInUse: 10.33. An address that another machine has is not added, until that gives it up. A
// link that comes up late has the address announced: neighbours with an old entry find it.
func TestAnnouncedInUse(t *testing.T) {
	l := newAddressLab(t)
	mac := strings.TrimSpace(l.says(l.Client, "ip -o link show dev "+l.from+" | sed 's/.*link.ether \\([^ ]*\\).*/\\1/'"))
	l.Client.TestScript(t, `ip address add "$2/32" dev "$1"; ip address add "$3/128" dev "$1" nodad`, l.from, announced, announced6)
	l.write(announced, announced6, moved)
	l.start()
	l.want("what the client does not have", moved)
	l.status(mac)
	l.status("AddressInUse")
	l.answers("an address of another machine", http.StatusServiceUnavailable)
	l.Client.TestScript(t, `ip address del "$2/32" dev "$1"; ip address del "$3/128" dev "$1"`, l.from, announced, announced6)
	l.want("what the client has given up", announced6+" "+announced+" "+moved)
	l.answers("an address of this machine", http.StatusOK)

	own := strings.Fields(l.says(l.Node, "ip -o link show dev "+l.link+" | sed 's/.*link.ether //'"))[0]
	l.Node.TestScript(t, `ip link set "$1" down; ip link set "$1" up`, l.link)
	l.Client.TestScript(t, `ip route replace "$2/32" dev "$1"; ip neigh replace "$2" lladdr 02:00:00:00:00:99 dev "$1" nud reachable`, l.from, announced)
	eventually(t, "the client knows who has the address", func() bool {
		return strings.Contains(l.says(l.Client, "ip neigh show to "+announced), own)
	})
}
