package worlds

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Balance is a Balance as its author writes it.
type Balance struct {
	Name      string
	Listen    []string
	Protocols []string
	Servers   []string // their addresses in the file
	fields    map[string]any
}

// Text returns the file of the Balance.
func (b *Balance) Text() ([]byte, error) { return json.Marshal(b.fields) }

// mode is a form of listen. Ports are a range, if it has any.
type mode struct {
	name     string
	outside  bool   // an address of its own
	wildcard string // what comes before the port: empty, or an interface; both families
	relay    bool
	ranges   bool
}

var modes = []mode{
	{name: "load balancer", outside: true}, {name: "load balancer", outside: true}, {name: "node"},
	{name: "all addresses", wildcard: ":"}, {name: "interface", wildcard: Client.Device + ":"},
	{name: "relay", outside: true, relay: true}, {name: "range", outside: true, ranges: true},
}

// fieldNames are the fields of a Balance by the settings of a Service.
var fieldNames = map[string]string{
	"scheduler": "scheduler", "client-addresses": "clientAddresses", "on-failure": "onFailure", "slow-start": "slowStart",
	"observe": "observe", "fast-path": "fastPath",
}

// balance draws the n-th Balance.
func (w *World) balance(n int) *Balance {
	m := drawOne(w.dice, modes...)
	b := &Balance{Name: fmt.Sprintf("b%d", n), Protocols: drawOne(w.dice, []string{"tcp"}, []string{"udp"}, []string{"tcp", "udp"})}
	if m.relay {
		b.Protocols = []string{"tcp"}
	}
	b.fields = map[string]any{"kind": "Balance", "name": b.Name, "protocol": b.Protocols}
	if m.relay {
		b.fields["relay"] = true
	}
	families := w.families(m)
	port := strconv.Itoa(drawOne(w.dice, 80, 81, 443, 5000, 7777) + drawOne(w.dice, 0, n))
	if m.ranges {
		port = drawOne(w.dice, "9000-9019", "9005-9010", "all")
	}
	b.Listen = w.listen(m, families, port)
	b.fields["listen"] = b.Listen
	serverPort := drawOne(w.dice, 8080, 8081, 5000)
	if m.ranges {
		serverPort = drawOne(w.dice, 0, 0, 5000) // the same port as the client's
	}
	b.fields["backends"] = w.servers(b, families, serverPort)
	w.addSettings(b, m)
	w.addRarer(b, m, len(families) == 2)
	return b
}

func (w *World) families(m mode) []model.Family {
	if m.wildcard != "" {
		return model.Families[:]
	}
	return drawOne(w.dice, []model.Family{4}, []model.Family{4}, []model.Family{6}, []model.Family{4, 6}, []model.Family{4, 6})
}

func (w *World) listen(m mode, families []model.Family, port string) (out []string) {
	if m.wildcard != "" {
		return []string{m.wildcard + port}
	}
	for _, f := range families {
		a := hostAddress(Node, f)
		if m.outside {
			a = netip.MustParseAddr(drawOne(w.dice, map[model.Family][]string{4: outside4, 6: outside6}[f]...))
		}
		out = append(out, bracketed(a)+":"+port)
	}
	return out
}

func bracketed(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

// servers draws the servers, in the short form or with options. Port 0 is none.
func (w *World) servers(b *Balance, families []model.Family, port int) (out []any) {
	for _, f := range families {
		for _, h := range drawSome(w.dice, 1, 3, Pods) {
			address := hostAddress(h, f).String()
			if port != 0 {
				address = fmt.Sprintf("%s:%d", bracketed(hostAddress(h, f)), port)
			}
			b.Servers = append(b.Servers, address)
			if w.isIn(60) {
				out = append(out, address)
				continue
			}
			s := map[string]any{"address": address}
			if w.isIn(40) {
				s["weight"] = w.IntN(6)
			}
			switch {
			case w.isIn(20):
				s["backup"] = true
			case w.isIn(20):
				s["priority"] = w.IntN(4)
			}
			if w.isIn(15) {
				s["drain"] = true
			}
			out = append(out, s)
		}
	}
	return out
}

// addSettings adds the settings of Services, as far as the mode has them.
func (w *World) addSettings(b *Balance, m mode) {
	values := w.drawSettings(common)
	if slices.Equal(b.Protocols, []string{"udp"}) {
		delete(values, "on-failure")
	}
	if m.relay {
		maps.DeleteFunc(values, func(name, value string) bool {
			return slices.Contains([]string{"client-addresses", "fast-path", "observe"}, name) || strings.HasPrefix(value, "maglev")
		})
	}
	for name, value := range values {
		b.fields[fieldNames[name]] = value
	}
	if strings.HasPrefix(values["scheduler"], "maglev") {
		b.fields["maglevTableSize"] = drawOne(w.dice, 251, 509)
	}
}

// addRarer adds fields that only Balances have.
func (w *World) addRarer(b *Balance, m mode, both bool) {
	if both && w.isIn(20) {
		b.fields["clients"] = []string{"192.0.2.0/24", "10.0.0.0/8", "2001:db8::/64", "fd00::/8"}
	}
	if w.isIn(15) {
		b.fields["deny"] = drawOne(w.dice, "10.128.0.4", "2001:db8::2", "10.0.0.0/8", "192.0.2.2")
	}
	if !m.relay && w.isIn(20) {
		b.fields["affinity"] = drawOne(w.dice, "1m", "10m")
	}
	if w.isIn(20) {
		b.fields["limits"] = map[string]any{"connections": 20000, "ratePerClient": "20000/second"}
	}
	if w.isIn(20) && slices.Contains(b.Protocols, "tcp") && !m.ranges {
		b.fields["check"] = drawOne(w.dice, map[string]any{"tcp": nil, "port": 8081},
			map[string]any{"tcp": nil, "interval": "1s", "timeout": "1s", "port": 8080})
	}
}
