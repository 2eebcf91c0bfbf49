package open

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// filled returns a table that a client without answers fills.
func filled() *conntrack.Table {
	t := &conntrack.Table{Groups: make(map[conntrack.Group]int)}
	add := func(n int, p model.Protocol, state, client, service, port string) {
		g := conntrack.Group{Protocol: p, State: state}
		if client != "" {
			g.Client = netip.MustParsePrefix(client)
		}
		if service != "" {
			g.Port = model.PortName{Service: model.ServiceName{Namespace: "shop", Name: service}, Port: port, Protocol: p}
		}
		t.Entries += n
		t.Groups[g] += n
	}
	add(9000, model.UDP, "unanswered", "192.0.2.10/32", "dns", "dns")
	add(300, model.UDP, "answered", "2001:db8::/64", "dns", "dns")
	add(200, model.TCP, "ESTABLISHED", "2001:db8::/64", "web", "http")
	add(40, model.TCP, "TIME_WAIT", "192.0.2.11/32", "web", "http")
	add(30, model.TCP, "SYN_SENT", "192.0.2.11/32", "web", "http")
	add(20, model.TCP, "CLOSE_WAIT", "192.0.2.12/32", "web", "http")
	add(10, model.TCP, "FIN_WAIT", "192.0.2.12/32", "web", "http")
	add(500, model.UDP, "unanswered", "", "dns", "dns")
	add(50, model.ICMP, "answered", "192.0.2.12/32", "", "")
	add(7, model.SCTP, "COOKIE_WAIT", "192.0.2.13/32", "phone", "")
	return t
}

// TestText: 11.31, the largest rows come first, in the words of what the node serves, and the others are summed up.
func TestText(t *testing.T) {
	for _, c := range []struct {
		name string
		max  int
		q    feature.Query
		in   words.Vocabulary
		want string
	}{
		{"all", 20_000, feature.Query{Limit: 9}, words.Kubernetes, `entries of connection tracking: 10157 of 20000 (50.8 %)

ENTRIES  OF MAX  SERVICE              STATES
9800     49.0 %  shop/dns:dns (udp)   unanswered 9500, answered 300
300      1.5 %   shop/web:http (tcp)  ESTABLISHED 200, TIME_WAIT 40, SYN_SENT 30 and 2 more
7        0.0 %   shop/phone (sctp)    COOKIE_WAIT 7
50       0.2 %   other                icmp answered 50

ENTRIES  OF MAX  CLIENT         SERVICES
9000     45.0 %  192.0.2.10     shop/dns:dns 9000
500      2.5 %   2001:db8::/64  shop/dns:dns 300, shop/web:http 200
80       0.4 %   192.0.2.12     other 50, shop/web:http 30
70       0.4 %   192.0.2.11     shop/web:http 70
7        0.0 %   192.0.2.13     shop/phone 7
and others, with 500 entries

ENTRIES  OF MAX  STATE
9500     47.5 %  udp unanswered
300      1.5 %   udp answered
200      1.0 %   tcp ESTABLISHED
50       0.2 %   icmp answered
40       0.2 %   tcp TIME_WAIT
30       0.1 %   tcp SYN_SENT
20       0.1 %   tcp CLOSE_WAIT
10       0.1 %   tcp FIN_WAIT
7        0.0 %   sctp COOKIE_WAIT
`},
		{"few rows of one, by name", 0, feature.Query{Limit: 1, Filter: "shop/web", ByName: true}, words.Balance, `entries of connection tracking: 10157

ENTRIES  BALANCE              STATES
300      shop/web:http (tcp)  ESTABLISHED 200, TIME_WAIT 40, SYN_SENT 30 and 2 more

ENTRIES  CLIENT      BALANCES
70       192.0.2.11  shop/web:http 70
and 2 more, with 230 entries

ENTRIES  STATE
20       tcp CLOSE_WAIT
and 4 more, with 280 entries
`},
		{"nothing", 100, feature.Query{Limit: 9, Filter: "none"}, words.Kubernetes, "entries of connection tracking: 10157 of 100 (10157.0 %)\n\nnone matches\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, newDocument(filled(), c.max, c.q, c.in).String()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestPage: docs/metrics.md shows what is printed, and has the names of all fields.
func TestPage(t *testing.T) {
	content, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	d := newDocument(filled(), 20_000, feature.Query{Limit: 9}, words.Kubernetes)
	if shown, _, _ := strings.Cut(d.String(), "\nENTRIES  OF MAX  STATE\n"); !strings.Contains(page, "$ nftproxy top --open\n"+shown+"...\n") {
		t.Errorf("the page does not show\n%s", shown)
	}
	for _, document := range []any{document{}, list{}, row{}, part{}} {
		for f := range reflect.TypeOf(document).Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !strings.Contains(page, "`"+name+"`") {
				t.Errorf("the page has no field %q", name)
			}
		}
	}
}

// TestJSON: 11.31, a document has numbers for programs, and no more rows than were asked for.
func TestJSON(t *testing.T) {
	got, err := json.Marshal(newDocument(filled(), 20_314, feature.Query{Limit: 1}, words.Kubernetes))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"entries":10157,"max":20314,"share":0.5,` +
		`"services":{"rows":[{"namespace":"shop","service":"dns","port":"dns","protocol":"udp","entries":9800,"share":%v,"parts":[{"name":"unanswered","entries":9500},{"name":"answered","entries":300}]}],"more":2,"moreEntries":307},` +
		`"other":{"entries":50,"share":%v,"parts":[{"name":"icmp answered","entries":50}]},` +
		`"clients":{"rows":[{"client":"192.0.2.10","entries":9000,"share":%v,"parts":[{"name":"shop/dns:dns","entries":9000}]}],"more":4,"moreEntries":1157},` +
		`"states":{"rows":[{"protocol":"udp","state":"unanswered","entries":9500,"share":%v}],"more":8,"moreEntries":657}}`
	if d := cmp.Diff(fmt.Sprintf(want, 9800/20314.0, 50/20314.0, 9000/20314.0, 9500/20314.0), string(got)); d != "" {
		t.Error(d)
	}
}

// TestReadsSeldom: 11.31, all readers share a reading for a second, or for ten times what it takes, and it leaves the memory
// after a minute. An error is no reading.
func TestReadsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, reads, takes := new(view), 0, time.Duration(0)
		read := func(want int) {
			t.Helper()
			if _, err := v.read(func() (*conntrack.Table, error) { reads++; time.Sleep(takes); return new(conntrack.Table), nil }); err != nil || reads != want {
				t.Errorf("%d readings, want %d; %v", reads, want, err)
			}
		}
		failed := errors.New("failed")
		if _, err := v.read(func() (*conntrack.Table, error) { return nil, failed }); !errors.Is(err, failed) {
			t.Error(err)
		}
		read(1)
		read(1)
		time.Sleep(period)
		takes = time.Second
		read(2)
		time.Sleep(rest*time.Second - time.Nanosecond)
		read(2)
		time.Sleep(time.Nanosecond)
		read(3)
		time.Sleep(keep)
		synctest.Wait()
		if v.last != nil {
			t.Error("the reading stays")
		}
	})
}
