package vitals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
)

var (
	vip   = netip.MustParseAddr("203.0.113.10")
	other = netip.MustParseAddr("203.0.113.20")
	vip6  = netip.MustParseAddr("2001:db8::10")
	rival = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

func at(link string, a netip.Addr) place { return place{Interface: link, Address: a} }

// machine is a kernel with interfaces that a test sets. Its marks are there unless it is old.
type machine struct {
	old bool

	mu       sync.Mutex
	on       map[place]host.LinkAddress
	links    map[string]host.Link
	others   map[netip.Addr]bool // addresses that another machine has, and answers for
	fail     map[string]error    // of calls, by their first word
	calls    []string
	claimed  map[string]func(host.Claim)
	followed []func()
}

func newMachine() *machine {
	return &machine{
		on: make(map[place]host.LinkAddress), others: make(map[netip.Addr]bool), fail: make(map[string]error), claimed: make(map[string]func(host.Claim)),
		links: map[string]host.Link{"eth0": {Index: 1, Up: true, Shared: true}, "eth1": {Index: 2, Up: true, Shared: true}},
	}
}

func (m *machine) List() (map[place]host.LinkAddress, map[string]host.Link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.on), maps.Clone(m.links), m.fail["list"]
}

func (m *machine) named(index int) string {
	for name, l := range m.links {
		if l.Index == index {
			return name
		}
	}
	return ""
}

// does notes a call, and returns its error.
func (m *machine) does(what, link string, a netip.Addr) error {
	if m.fail[what] != nil {
		return m.fail[what]
	}
	m.calls = append(m.calls, fmt.Sprintf("%s %s@%s", what, a, link))
	return nil
}

func (m *machine) Add(index int, a netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	link := m.named(index)
	err := m.does("add", link, a)
	if err == nil {
		m.on[at(link, a)] = host.LinkAddress{Marked: !m.old, Failed: a.Is6() && m.others[a], Tentative: a.Is6() && m.others[a]}
	}
	return err
}

func (m *machine) Remove(index int, a netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	link := m.named(index)
	err := m.does("remove", link, a)
	if err == nil {
		delete(m.on, at(link, a))
	}
	return err
}

func (m *machine) Announce(link string, a netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.does("announce", link, a)
}

func (m *machine) Probe(link string, a netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail["probe"] != nil {
		return m.fail["probe"]
	}
	if claimed := m.claimed[link]; m.others[a] && claimed != nil {
		go claimed(host.Claim{Address: a, MAC: rival})
	}
	return nil
}

func (m *machine) Listen(_ context.Context, link string, claimed func(host.Claim), _ func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail["listen"] == nil {
		m.claimed[link] = claimed
	}
	return m.fail["listen"]
}

func (m *machine) Follow(_ context.Context, changed func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed = append(m.followed, changed)
}

// edit changes the machine without an event.
func (m *machine) edit(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// change changes the machine, and tells those who follow it.
func (m *machine) change(f func()) {
	var followed []func()
	m.edit(func() { f(); followed = m.followed })
	for _, changed := range followed {
		changed()
	}
}

// has returns the addresses, sorted.
func (m *machine) has() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for p := range m.on {
		out = append(out, p.Address.String()+"@"+p.Interface)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// count returns how often a call was made.
func (m *machine) count(call string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls {
		if c == call {
			n++
		}
	}
	return n
}

// addressLab is an actor on a machine.
type addressLab struct {
	*testing.T
	*Actor
	m *machine
	fakeBalances
	dir  string // at run time
	log  *bytes.Buffer
	stop func()
}

func newAddressLab(t *testing.T, m *machine) *addressLab {
	return &addressLab{T: t, m: m, dir: t.TempDir(), log: new(bytes.Buffer)}
}

// start begins with these Balances; the ones before are forgotten, as by a new process.
func (l *addressLab) start(states map[string]State) {
	l.Helper()
	if l.stop != nil {
		l.stop()
	}
	l.states = states
	n := &feature.Node{Config: new(config.Config), RuntimeDirectory: l.dir, Log: slog.New(slog.NewTextHandler(l.log, nil))}
	n.Config.Own.AnnounceInterval = time.Minute
	l.Actor = newActor(n, &l.fakeBalances, l.m)
	ctx, cancel := context.WithCancel(l.Context())
	var all sync.WaitGroup
	all.Go(func() { l.Actor.Run(ctx) })
	l.stop = func() { cancel(); all.Wait() }
	var names []model.ServiceName
	for name := range states {
		names = append(names, nameOf(name))
	}
	l.Note(names...)
	l.request(true)
	l.pass(time.Second)
}

func (l *addressLab) set(name string, s State) {
	l.guard.Lock()
	l.states[name] = s
	l.guard.Unlock()
	l.Synced(nameOf(name))
	l.pass(time.Second)
}

func (l *addressLab) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want checks the addresses and the problems, of which each begins with its reason.
func (l *addressLab) want(has string, problems ...string) {
	l.Helper()
	var got []string
	for _, p := range l.Problems(time.Time{}) {
		got = append(got, string(p.Reason)+": "+p.Message)
	}
	if l.m.has() != has || !slices.EqualFunc(got, problems, strings.HasPrefix) {
		l.Fatalf("%s; problems %q, want %s; %q; log:\n%s", l.m.has(), got, has, problems, l.log)
	}
}

func up(link string, a ...netip.Addr) State {
	return State{Usable: 1, Servers: 1, Link: link, Addresses: a}
}

func down(link string, a ...netip.Addr) State { return State{Servers: 1, Link: link, Addresses: a} }

// TestAddresses: 10.33. An interface has an address while one of the Balances that ask for it has a
// usable server.
func TestAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAddressLab(t, newMachine())
		l.start(map[string]State{"web": up("eth0", vip, vip6)})
		defer func() { l.stop() }()
		l.want("2001:db8::10@eth0 203.0.113.10@eth0")
		for _, step := range []struct {
			name  string
			state State
			has   string
		}{
			{"dns", down("eth0", vip), "2001:db8::10@eth0 203.0.113.10@eth0"},
			{"dns", up("eth0", vip), "2001:db8::10@eth0 203.0.113.10@eth0"},
			{"web", down("eth0", vip, vip6), "203.0.113.10@eth0"},
			{"dns", down("eth0", vip), ""},
			{"web", up("eth1", vip), "203.0.113.10@eth1"},
			{"web", State{Usable: 1}, ""},
			{"none", State{Usable: 1}, ""},
		} {
			l.set(step.name, step.state)
			l.want(step.has)
		}
	})
}

// TestAddressesAfterRestart: 10.33. What an earlier process has added, and no Balance wants any more, is
// removed; addresses of others stay.
func TestAddressesAfterRestart(t *testing.T) {
	for _, old := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			m.old = old
			foreign := netip.MustParseAddr("192.0.2.1")
			m.on[at("eth0", foreign)] = host.LinkAddress{}
			l := newAddressLab(t, m)
			defer func() { l.stop() }()
			l.start(map[string]State{"web": up("eth0", vip)})
			l.want("192.0.2.1@eth0 203.0.113.10@eth0")
			l.start(map[string]State{"web": up("eth0", other)})
			l.want("192.0.2.1@eth0 203.0.113.20@eth0")
			l.start(map[string]State{"web": up("eth1", other)})
			l.want("192.0.2.1@eth0 203.0.113.20@eth1")
			n := m.count("add 203.0.113.20@eth1")
			l.start(map[string]State{"web": up("eth1", other)})
			if l.want("192.0.2.1@eth0 203.0.113.20@eth1"); m.count("add 203.0.113.20@eth1") != n {
				t.Error("an address that is there is added again")
			}
			l.start(nil)
			l.want("192.0.2.1@eth0")
			if _, err := os.Stat(RecordIn(l.dir)); err == nil {
				t.Error("a record without addresses is left")
			}
		})
	}
}

// TestAddressesKept: while a part of the source cannot be read, addresses of an earlier run stay, like the
// rules; those that a Balance has given up since do not.
func TestAddressesKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newAddressLab(t, newMachine())
		l.start(map[string]State{"web": up("eth0", vip), "dns": up("eth0", other)})
		defer func() { l.stop() }()
		l.keeps.Store(true)
		l.start(map[string]State{"dns": up("eth0", other)})
		l.want("203.0.113.10@eth0 203.0.113.20@eth0")
		l.set("dns", State{})
		l.want("203.0.113.10@eth0")
		l.start(nil)
		l.want("203.0.113.10@eth0")
		l.keeps.Store(false)
		l.Compare()
		l.pass(time.Second)
		l.want("")
	})
}

// TestRecordOfAnother: an address that was marked, and is not any more, is another one.
func TestRecordOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		l := newAddressLab(t, m)
		l.start(map[string]State{"web": up("eth0", vip)})
		l.stop()
		m.on[at("eth0", vip)] = host.LinkAddress{}
		l.start(nil)
		defer l.stop()
		l.want("203.0.113.10@eth0")
	})
}

// TestAddressesReturn: 10.33. An address that is lost is added again, and a failure stays a problem.
func TestAddressesReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		l := newAddressLab(t, m)
		l.start(map[string]State{"web": up("eth0", vip, vip6)})
		defer func() { l.stop() }()
		state := l.states["web"]
		both := "2001:db8::10@eth0 203.0.113.10@eth0"
		if l.want(both); l.addresses.lacks(state) {
			t.Error("addresses that are there are missed")
		}
		m.change(func() { delete(m.on, at("eth0", vip)) })
		l.pass(time.Second)
		l.want(both)

		m.change(func() { clear(m.on); delete(m.links, "eth0") })
		l.pass(time.Second)
		l.want("", "NotAnnounced: 2001:db8::10 on interface eth0: add it: there is no interface eth0", "NotAnnounced: 203.0.113.10 on interface eth0: ")
		if !l.addresses.lacks(state) {
			t.Error("addresses that are not there are not missed")
		}
		m.change(func() { m.links["eth0"] = host.Link{Index: 7, Up: true, Shared: true} })
		l.pass(3 * time.Second)
		l.want(both)

		m.change(func() { m.fail["add"] = errors.New("no room"); clear(m.on) })
		l.pass(5 * time.Second)
		l.want("", "NotAnnounced: 2001:db8::10 on interface eth0: add it: no room", "NotAnnounced: 203.0.113.10 ")
		if n := strings.Count(l.log.String(), "no room"); n != 2 {
			t.Errorf("a failure of two addresses is logged %d times", n)
		}
		m.edit(func() { delete(m.fail, "add") })
		l.pass(3 * time.Second)
		l.want(both)

		m.edit(func() { m.fail["remove"] = errors.New("busy") })
		l.set("web", down("eth0", vip, vip6))
		l.want(both, "NotAnnounced: 2001:db8::10 on interface eth0: remove it: busy", "NotAnnounced: 203.0.113.10 ")
		m.edit(func() { delete(m.fail, "remove") })
		l.pass(3 * time.Second)
		l.want("")
		m.edit(func() { m.fail["list"] = errors.New("no memory") })
		l.set("web", up("eth0", vip))
		l.want("", "NotAnnounced: no memory")
		m.edit(func() { delete(m.fail, "list") })
		l.pass(4 * time.Second)
		l.want("203.0.113.10@eth0")
		// Without an event, the comparison finds it.
		m.edit(func() { delete(m.on, at("eth0", vip)) })
		l.Compare()
		l.pass(time.Second)
		l.want("203.0.113.10@eth0")
	})
}

// TestAnnouncements: 10.33. An address is announced five times within 10 s when it is added and when its
// link comes up, then every minute; a failure is repeated, and a problem until then.
func TestAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		l := newAddressLab(t, m)
		l.start(map[string]State{"web": up("eth0", vip)})
		defer func() { l.stop() }()
		const call = "announce 203.0.113.10@eth0"
		expect := func(after time.Duration, n int) {
			t.Helper()
			l.pass(after)
			if got := m.count(call); got != n {
				t.Fatalf("announced %d times, want %d", got, n)
			}
		}
		expect(9*time.Second, 5)
		expect(50*time.Second, 5)
		expect(time.Minute, 6)
		l.set("web", State{Usable: 2, Servers: 2, Link: "eth0", Addresses: []netip.Addr{vip}})
		expect(0, 6)
		setLink := func(up bool) {
			m.change(func() { m.links["eth0"] = host.Link{Index: 1, Up: up, Shared: true} })
		}
		setLink(false)
		expect(5*time.Minute, 6)
		setLink(true)
		expect(9*time.Second, 11)

		m.edit(func() { m.fail["announce"], m.fail["listen"] = unix.EPERM, unix.EPERM })
		l.start(map[string]State{"web": up("eth0", vip, other)})
		l.pass(10 * time.Second)
		l.want("203.0.113.10@eth0 203.0.113.20@eth0", "NotAnnounced: 203.0.113.10 on interface eth0: announce it: operation not permitted: grant CAP_NET_RAW: ", "NotAnnounced: 203.0.113.20 ")
		if n := strings.Count(l.log.String(), "not permitted"); n != 2 {
			t.Errorf("a failure of two addresses is logged %d times", n)
		}
		m.edit(func() { clear(m.fail) })
		expect(10*time.Second, 16)
		l.want("203.0.113.10@eth0 203.0.113.20@eth0")
	})
}

// TestAddressInUse: 10.33. An address that another machine has is not added, and a problem has its MAC.
// So has one when the other machine claims it later.
func TestAddressInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.edit(func() { m.others[vip], m.others[vip6] = true, true })
		l := newAddressLab(t, m)
		l.start(map[string]State{"web": up("eth0", vip, vip6, other)})
		defer func() { l.stop() }()
		const mac = "(MAC 02:00:00:00:00:09)"
		l.pass(21 * time.Second)
		l.want("203.0.113.20@eth0", "AddressInUse: 2001:db8::10 on interface eth0: not added, because another machine has it (MAC unknown)", "AddressInUse: 203.0.113.10 on interface eth0: not added, because another machine has it "+mac)
		if n := strings.Count(l.log.String(), "another machine has"); n != 2 || m.count("add 203.0.113.10@eth0") > 0 {
			t.Errorf("two conflicts are logged %d times: %s", n, l.log)
		}
		m.edit(func() { clear(m.others) })
		l.pass(7 * time.Second)
		l.want("2001:db8::10@eth0 203.0.113.10@eth0 203.0.113.20@eth0")

		say := func(c host.Claim) {
			m.claimed["eth0"](c)
			l.pass(time.Second)
		}
		say(host.Claim{Address: vip, MAC: rival, Probe: true})
		say(host.Claim{Address: netip.MustParseAddr("192.0.2.1"), MAC: rival})
		l.want("2001:db8::10@eth0 203.0.113.10@eth0 203.0.113.20@eth0")
		say(host.Claim{Address: vip6, MAC: rival})
		l.want("2001:db8::10@eth0 203.0.113.10@eth0 203.0.113.20@eth0", "AddressInUse: 2001:db8::10 on interface eth0: another machine claims it "+mac)
		l.pass(3 * time.Minute)
		l.want("2001:db8::10@eth0 203.0.113.10@eth0 203.0.113.20@eth0")

		// Of two machines that ask at the same time, one gets it.
		l.set("web", down("eth0", vip))
		l.states["web"] = up("eth0", vip)
		l.Synced(nameOf("web"))
		synctest.Wait()
		say(host.Claim{Address: vip, MAC: rival, Probe: true})
		l.want("", "AddressInUse: 203.0.113.10 ")
	})
}

// TestRemoveAddresses: what an earlier process has added is removed, also from the record.
func TestRemoveAddresses(t *testing.T) {
	m := newMachine()
	path := filepath.Join(t.TempDir(), recordName)
	recorded := &record{path: path}
	if err := errors.Join(recorded.read(), recorded.write(map[place]bool{at("eth1", other): false})); err != nil {
		t.Fatal(err)
	}
	m.on[at("eth0", vip)], m.on[at("eth1", other)], m.on[at("eth1", vip6)] = host.LinkAddress{Marked: true}, host.LinkAddress{}, host.LinkAddress{}
	m.fail["remove"] = errors.New("busy")
	if removed, err := RemoveAddresses(m, path); len(removed) > 0 || err == nil {
		t.Errorf("removed %q, %v", removed, err)
	}
	clear(m.fail)
	removed, err := RemoveAddresses(m, path)
	if want := []string{"address 203.0.113.10 from interface eth0", "address 203.0.113.20 from interface eth1"}; !slices.Equal(removed, want) || err != nil {
		t.Errorf("removed %q, %v", removed, err)
	}
	if _, err := os.Stat(path); err == nil || m.has() != "2001:db8::10@eth1" {
		t.Errorf("%s are left, and the record: %v", m.has(), err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveAddresses(m, path); err == nil {
		t.Error("a broken record is not an error")
	}
}
