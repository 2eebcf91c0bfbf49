package rewrite

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestServersOfPool: 1.63. A server of a list is not changed by way of one of the Balances that use it:
// the message says what to do. A server of the Balance itself is, and may be added.
func TestServersOfPool(t *testing.T) {
	three := 3
	const whole = "kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends: {servers: app, port: 8080} # shared\n"
	const list = "kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends:\n- {servers: app}\n- 10.0.0.9\n"
	const refused = "has no server 10.0.0.1 of its own: it has the ones of Servers app, which other Balances may have, too: edit that object"
	for _, c := range []struct {
		name, text, address, want, err string
		change                         Change
	}{
		{"weight", whole, "10.0.0.1", "", refused, Change{Weight: &three}},
		{"weight, in a list", list, "10.0.0.1", "", refused, Change{Weight: &three}},
		{"remove", list, "10.0.0.1", "", refused, Change{Remove: true}},
		{"own weight", list, "10.0.0.9", strings.Replace(list, "- 10.0.0.9", "- {address: 10.0.0.9, weight: 3}", 1), "", Change{Weight: &three}},
		{"remove an own one", list, "10.0.0.9", strings.Replace(list, "- 10.0.0.9\n", "", 1), "", Change{Remove: true}},
		{"add", whole, "10.0.0.7", strings.Replace(whole, "{servers: app, port: 8080}", "[{servers: app, port: 8080}, 10.0.0.7]", 1), "", Change{Add: true}},
		{"add to a list", list, "10.0.0.7", list + "- 10.0.0.7\n", "", Change{Add: true}},
	} {
		c.change.Balance, c.change.Address = model.ServiceName{Namespace: "default", Name: "web"}, netip.MustParseAddr(c.address)
		got, err := File([]byte(c.text), c.change)
		if string(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %s\nwant %q\n%s", c.name, err, got, c.err, c.want)
		}
	}
}
