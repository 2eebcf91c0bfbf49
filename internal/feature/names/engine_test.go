package names

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestChange: every address of both families is a server, and an answer with others replaces
// them once its TTL is over (19.1, 19.2).
func TestChange(t *testing.T) {
	f, s := newFaulty(t), web("app.example.com")
	f.set("app.example.com", "A", reply{addresses: []string{"10.1.1.3", "10.1.1.2", "10.1.1.2"}})
	f.set("app.example.com", "AAAA", reply{addresses: []string{"fd00::2"}})
	e := follow(t, Config{Servers: []netip.AddrPort{f.address}})
	e.await(s, "10.1.1.2:8080", "10.1.1.3:8080", "[fd00::2]:8080")
	f.set("app.example.com", "A", reply{addresses: []string{"10.1.1.4"}})
	e.await(s, "10.1.1.4:8080", "[fd00::2]:8080")
	f.set("app.example.com", "AAAA", reply{}) // no record any more
	e.await(s, "10.1.1.4:8080")
	if name := e.Edit(s.Service.Name, s).Service.NameOf(netip.MustParseAddr("10.1.1.4")); name != "app.example.com" {
		t.Errorf("name of the endpoint: %q", name)
	}
}

// TestTTL: a name is looked up again when the least TTL of its records is over, within bounds.
func TestTTL(t *testing.T) {
	alias := func(ttl uint32) dnsmessage.Resource { return resource("app.example.com.", ttl, "other.example.com.") }
	address := func(ttl uint32) dnsmessage.Resource { return resource("Other.example.com.", ttl, "10.1.1.2") }
	for _, c := range []struct {
		name      string
		resources []dnsmessage.Resource
		want      time.Duration
	}{
		{"of the alias", []dnsmessage.Resource{alias(30), address(60)}, 30 * time.Second},
		{"of the address", []dnsmessage.Resource{address(20), alias(30)}, 20 * time.Second},
		{"zero", []dnsmessage.Resource{alias(30), address(0)}, time.Second},
		{"with the highest bit, which counts as zero", []dnsmessage.Resource{alias(30), address(1 << 31)}, time.Second},
		{"large", []dnsmessage.Resource{alias(1<<31 - 1), address(1<<31 - 1)}, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFaulty(t)
			f.set("app.example.com", "A", reply{resources: c.resources})
			e := NewEngine(Config{Servers: []netip.AddrPort{f.address}, Timeout: 10 * time.Second, MinTTL: time.Second, MaxTTL: time.Hour})
			r := e.client.lookup(t.Context(), key{name: "app.example.com"}, []model.Family{model.IPv4}, nil)
			if got := e.wait(&entry{}, r); r.err != nil || len(r.records) != 1 || got != c.want {
				t.Errorf("%v, wait %v, want %v", r, got, c.want)
			}
		})
	}
}

// TestLastGood: the last good answer stays through failures, and through answers without
// addresses, for ever; and the status says since when (19.3).
func TestLastGood(t *testing.T) {
	for name, bad := range map[string]reply{
		"failure":         {code: dnsmessage.RCodeServerFailure},
		"no such name":    {code: dnsmessage.RCodeNameError},
		"no records":      {},
		"silence":         {silent: true},
		"refused":         {code: dnsmessage.RCodeRefused},
		"this machine":    {addresses: []string{"127.0.0.1", "0.0.0.0"}},
		"multicast":       {addresses: []string{"224.0.0.1", "169.254.1.1", "255.255.255.255"}},
		"broken":          {spoil: func(m []byte) [][]byte { m[7] = 9; return [][]byte{m} }}, // 9 records that are not there
		"of another name": {resources: []dnsmessage.Resource{resource("other.example.com.", 1, "10.6.6.6")}},
		"aliases that end": {resources: []dnsmessage.Resource{
			resource("app.example.com.", 1, "b.example.com."), resource("b.example.com.", 1, "app.example.com.")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s := newFaulty(t), web("app.example.com")
			f.set("app.example.com", "A", reply{addresses: []string{"10.1.1.2"}})
			f.set("app.example.com", "AAAA", reply{})
			e := follow(t, Config{Servers: []netip.AddrPort{f.address}, Timeout: 100 * time.Millisecond})
			e.await(s, "10.1.1.2:8080")
			f.set("app.example.com", "A", bad)
			e.awaitStatus("failure", func(s Status) bool { return s.Err != nil && !s.Since.IsZero() })
			if got := e.endpoints(s); fmt.Sprint(got) != "[10.1.1.2:8080]" {
				t.Errorf("endpoints %v", got)
			}
			problems := e.Problems(time.Now())
			if len(problems) != 1 || problems[0].Reason != model.NameFailing || problems[0].Object.String() != "Name app.example.com" ||
				!strings.Contains(problems[0].Message, "its last addresses stay: 10.1.1.2 (default/web)") {
				t.Errorf("problems %+v", problems)
			}
			if of := e.ProblemsOf(s.Service.Name, time.Now()); len(of) != 1 || !strings.HasPrefix(of[0], "name app.example.com: ") {
				t.Errorf("problems of the Balance: %q", of)
			}
			if of := e.ProblemsOf(model.ServiceName{Namespace: "default", Name: "other"}, time.Now()); len(of) != 0 {
				t.Errorf("problems of another Balance: %q", of)
			}
			f.set("app.example.com", "A", reply{addresses: []string{"10.1.1.9"}})
			e.await(s, "10.1.1.9:8080")
			e.awaitStatus("end of the failure", func(s Status) bool { return s.Err == nil && s.Since.IsZero() })
		})
	}
}

// TestForgedAnswers: messages with another identifier or question are no answers.
func TestForgedAnswers(t *testing.T) {
	f := newFaulty(t)
	f.set("app.example.com", "A", reply{addresses: []string{"10.1.1.2"}, spoil: func(m []byte) [][]byte {
		forged := func(change func([]byte)) []byte {
			other := append([]byte{}, m...)
			other[len(other)-1] = 66
			change(other)
			return other
		}
		return [][]byte{
			forged(func(m []byte) { m[0]++ }), forged(func(m []byte) { m[2] &^= 0x80 }), forged(func(m []byte) { m[13]++ }),
			forged(func(m []byte) { m[5] = 0 }), {}, m[:5], m,
		}
	}})
	e := NewEngine(Config{Servers: []netip.AddrPort{f.address}, Timeout: 10 * time.Second})
	r := e.client.lookup(t.Context(), key{name: "app.example.com"}, []model.Family{model.IPv4}, nil)
	if r.err != nil || len(r.records) != 1 || r.records[0].Address.String() != "10.1.1.2" {
		t.Errorf("%+v", r)
	}
}

// TestManyAddresses: an answer that does not fit into a packet is asked for over TCP (19.7). Beyond
// the budget, addresses are left out, and larger answers are refused (19.9).
func TestManyAddresses(t *testing.T) {
	many := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("10.%d.%d.2", i/256, i%256))
		}
		return out
	}
	f := newFaulty(t)
	lookup := func(n int) result {
		f.set("app.example.com", "A", reply{addresses: many(n)})
		e := NewEngine(Config{Servers: []netip.AddrPort{f.address}, Timeout: 10 * time.Second})
		return e.client.lookup(t.Context(), key{name: "app.example.com"}, []model.Family{model.IPv4}, nil)
	}
	if r := lookup(900); r.err != nil || len(r.records) != budget.NameAddresses || r.dropped != 900-budget.NameAddresses {
		t.Errorf("%d records, %d dropped, %v", len(r.records), r.dropped, r.err)
	}
	if r := lookup(4000); r.err == nil || len(r.records) != 0 {
		t.Errorf("%d records, %v", len(r.records), r.err)
	}
}

// TestRecords: SRV records give addresses, ports, weights and priorities. Of a target that
// cannot be looked up, the last addresses stay; one without addresses is gone (19.4).
func TestRecords(t *testing.T) {
	const name = "_http._tcp.example.com"
	f, s := newFaulty(t), web(name)
	f.set(name, "SRV", reply{resources: []dnsmessage.Resource{
		srv(name+".", 9, 10, 300, 8081, "a.example.com."), srv(name+".", 9, 10, 0, 8082, "b.example.com."), srv(name+".", 9, 70, 0, 8083, "b.example.com."),
		srv(name+".", 9, 10, 0, 8084, "gone.example.com."),
	}})
	f.set("a.example.com", "A", reply{ttl: 9, addresses: []string{"10.1.1.2", "10.1.1.3"}})
	f.set("b.example.com", "A", reply{addresses: []string{"10.1.1.4"}})
	f.set("a.example.com", "AAAA", reply{})
	f.set("b.example.com", "AAAA", reply{})
	e := follow(t, Config{Servers: []netip.AddrPort{f.address}})
	e.await(s, "10.1.1.2:8081", "10.1.1.3:8081", "10.1.1.4:8082", "10.1.1.4:8083")
	var got []string
	for _, slice := range e.Edit(s.Service.Name, s).Slices {
		for _, h := range slice.Hosts {
			got = append(got, fmt.Sprintf("%s weight %d priority %d", h.Address, h.Weight, h.Priority))
		}
	}
	want := "10.1.1.2 weight 300 priority 0, 10.1.1.3 weight 300 priority 0, 10.1.1.4 weight 1 priority 0, 10.1.1.4 weight 1 priority 1"
	if strings.Join(got, ", ") != want {
		t.Errorf("hosts %s, want %s", strings.Join(got, ", "), want)
	}
	f.set("a.example.com", "A", reply{code: dnsmessage.RCodeServerFailure})
	e.awaitStatus("failure", func(s Status) bool { return s.Err != nil && strings.Contains(s.Err.Error(), "a.example.com.") })
	f.set("b.example.com", "A", reply{code: dnsmessage.RCodeNameError})
	e.await(s, "10.1.1.2:8081", "10.1.1.3:8081")
}

// TestRestart: the last good answers outlast the process, and serve before DNS has answered;
// names that are gone are forgotten (19.5).
func TestRestart(t *testing.T) {
	state := filepath.Join(t.TempDir(), FileName)
	f, s := newFaulty(t), web("app.example.com", "_http._tcp.example.com")
	f.set("app.example.com", "A", reply{addresses: []string{"10.1.1.2"}})
	f.set("app.example.com", "AAAA", reply{})
	f.set("_http._tcp.example.com", "SRV", reply{resources: []dnsmessage.Resource{srv("_http._tcp.example.com.", 9, 1, 7, 81, "app.example.com.")}})
	t.Run("first", func(t *testing.T) {
		e := follow(t, Config{Servers: []netip.AddrPort{f.address}, State: state})
		e.await(s, "10.1.1.2:8080", "10.1.1.2:81")
	})
	f.set("app.example.com", "A", reply{silent: true})
	f.set("_http._tcp.example.com", "SRV", reply{silent: true})
	t.Run("second", func(t *testing.T) {
		e := follow(t, Config{Servers: []netip.AddrPort{f.address}, State: state})
		if got := e.endpoints(s); fmt.Sprint(got) != "[10.1.1.2:8080 10.1.1.2:81]" {
			t.Errorf("endpoints after the restart: %v", got)
		}
		e.Edit(s.Service.Name, web("app.example.com"))
		e.awaitStatus("kept addresses", func(s Status) bool { return s.Addresses == 1 })
	})
	if text, err := os.ReadFile(state); err != nil || strings.Contains(string(text), "_http") || !strings.Contains(string(text), "10.1.1.2") {
		t.Errorf("state %s, %v", text, err)
	}
}

// TestBrokenState: a state that cannot be used is none.
func TestBrokenState(t *testing.T) {
	for name, text := range map[string]string{
		"cut": `{"version":1,"names":[{"na`, "empty": "", "another version": `{"version":2,"names":[]}`,
		"loopback":      `{"version":1,"names":[{"name":"app.example.com","records":[{"address":"127.0.0.1"}]}]}`,
		"port":          `{"version":1,"names":[{"name":"app.example.com","records":[{"address":"10.1.1.2","port":80}]}]}`,
		"high priority": `{"version":1,"names":[{"name":"_a._tcp.x","srv":true,"records":[{"address":"10.1.1.2","port":80,"priority":10}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if names, err := parseState([]byte(text)); err == nil {
				t.Errorf("no error: %v", names)
			}
		})
	}
}

// oneFrontend holds the only frontend of a node.
type oneFrontend struct {
	feature.Serving
	now chan model.Frontend
}

func (o oneFrontend) PortOf(f model.Frontend) (model.PortName, bool) {
	own := <-o.now
	o.now <- own
	return model.PortName{Service: model.ServiceName{Namespace: "default", Name: "api"}}, f == own
}

// TestOwnFrontend: an address of a name that is a frontend of this node is no server, once the
// frontend is known and as long as it is (19.6).
func TestOwnFrontend(t *testing.T) {
	f, s := newFaulty(t), web("app.example.com")
	f.set("app.example.com", "A", reply{ttl: 3600, addresses: []string{"10.1.1.2", "203.0.113.11"}})
	f.set("app.example.com", "AAAA", reply{})
	frontends := make(chan model.Frontend, 1)
	frontends <- model.Frontend{}
	node := new(feature.Node)
	node.Serve(oneFrontend{now: frontends})
	e := follow(t, Config{Servers: []netip.AddrPort{f.address}, Node: node})
	e.await(s, "10.1.1.2:8080", "203.0.113.11:8080")
	<-frontends
	frontends <- model.Frontend{Address: netip.MustParseAddr("203.0.113.11"), Protocol: model.TCP, Port: 8080}
	e.FollowSync(&feature.Sync{Compared: true})
	e.await(s, "10.1.1.2:8080")
	problems := e.Problems(time.Now())
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "its address 203.0.113.11 is one that default/api serves on this machine") {
		t.Errorf("problems %+v", problems)
	}
	<-frontends
	frontends <- model.Frontend{}
	e.FollowSync(&feature.Sync{Compared: true})
	e.await(s, "10.1.1.2:8080", "203.0.113.11:8080")
}

// TestSecondServer: 19.7. A server that does not answer, or fails, is followed by the next one, which
// is asked first from then on.
func TestSecondServer(t *testing.T) {
	first, second := newFaulty(t), newFaulty(t)
	first.set("app.example.com", "A", reply{code: dnsmessage.RCodeServerFailure})
	second.set("app.example.com", "A", reply{addresses: []string{"10.1.1.2"}})
	e := NewEngine(Config{Servers: []netip.AddrPort{first.address, second.address}, Timeout: 10 * time.Second})
	for range 3 {
		r := e.client.lookup(t.Context(), key{name: "app.example.com"}, []model.Family{model.IPv4}, nil)
		if r.err != nil || len(r.records) != 1 {
			t.Fatalf("%+v", r)
		}
	}
	if n := first.count("app.example.com", "A"); n != 1 {
		t.Errorf("the first server was asked %d times", n)
	}
}

// TestOneFamily: only the families are asked for that the Service listens in.
func TestOneFamily(t *testing.T) {
	f, s := newFaulty(t), web("app.example.com")
	s.Service.External.LoadBalancerIPs = s.Service.External.LoadBalancerIPs[1:]
	f.set("app.example.com", "A", reply{addresses: []string{"10.1.1.2"}})
	f.set("app.example.com", "AAAA", reply{ttl: 3600, addresses: []string{"fd00::2"}})
	e := follow(t, Config{Servers: []netip.AddrPort{f.address}})
	e.await(s, "[fd00::2]:8080")
	if n := f.count("app.example.com", "A"); n != 0 {
		t.Errorf("asked %d times for IPv4", n)
	}
	if n := f.count("app.example.com", "AAAA"); n != 1 {
		t.Errorf("asked %d times for IPv6", n)
	}
}

// TestTooManyNames: 19.9. Names beyond the budget are not looked up, and the status names the Services.
func TestTooManyNames(t *testing.T) {
	e := NewEngine(Config{})
	for i := range budget.Names {
		s := web(fmt.Sprintf("a%d.example.com", i))
		s.Service.Name.Name = fmt.Sprint("web-", i)
		e.Edit(s.Service.Name, s)
	}
	s := web("app.example.com", "a0.example.com")
	e.Edit(s.Service.Name, s)
	if names, _ := e.Counts(); names != budget.Names {
		t.Errorf("%d names", names)
	}
	if p := e.Problems(time.Now()); len(p) != 1 || p[0].Object.String() != "Service default/web" {
		t.Errorf("problems %v", p)
	}
	e.Edit(s.Service.Name, model.ServiceState{})
	if p := e.Problems(time.Now()); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
}

// TestResolvConf: the file is followed. Names without a dot are looked up in its domains.
func TestResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# a remark\nnameserver 192.0.2.53 # and another one\nnameserver 2001:db8::53\noptions ndots:2\nsearch Example.com sub.example.com.\nnameserver x\n")
	s := servers{path: path}
	now := time.Now()
	c := s.current(now)
	if got := fmt.Sprint(c.servers, c.full("app"), c.full("app.x"), c.full("app.")); got != "[192.0.2.53:53 [2001:db8::53]:53] [app.example.com. app.sub.example.com. app.] [app.x.] [app.]" {
		t.Error(got)
	}
	write("nameserver 192.0.2.54\n")
	if got := fmt.Sprint(s.current(now.Add(confPause)).servers); got != "[192.0.2.54:53]" {
		t.Error("after a change:", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.current(now.Add(2 * confPause)).servers); got != "[192.0.2.54:53]" {
		t.Error("after the file is gone:", got)
	}
	empty := servers{path: path}
	if got := fmt.Sprint(empty.current(now).servers); got != "[127.0.0.1:53]" {
		t.Error("without a file:", got)
	}
}
