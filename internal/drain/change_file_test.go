package drain

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// FuzzChangesFile: changes are read as they were written, whatever the name of the user who made them.
func FuzzChangesFile(f *testing.F) {
	for _, by := range []string{"", "root", "a: b", "- x", "#", "?", "0x1", "yes", "null", "a\tb", "\t\n", "a\n\tb", "\u0085", "\xff", "\x00"} {
		f.Add(by)
	}
	f.Fuzz(func(t *testing.T, by string) {
		server := Server{Address: netip.MustParseAddr("fd00::1"), Port: 80}
		want := Changes{model.ServiceName{Namespace: "shop", Name: "0x1"}: {{Server: server, Weight: 3, File: absent, Since: time.Unix(1, 0).UTC(), By: by}}}
		got, problems := parse("drain.yaml", []byte(Content{Changes: want}.text()))
		want[model.ServiceName{Namespace: "shop", Name: "0x1"}][0].By = strings.ToValidUTF8(by, "\ufffd")
		if len(problems) > 0 || !reflect.DeepEqual(got.Changes, want) {
			t.Errorf("got %v, %v, want %v from\n%s", got, problems, want, Content{Changes: want}.text())
		}
	})
}

// FuzzRequest: any request at the control socket is refused, or about a server with an address, and a weight that a
// file may have.
func FuzzRequest(f *testing.F) {
	for _, server := range []string{"10.0.0.2", "[fd00::2]:80", "10.0.0.2:0", "fe80::1%eth0", "::ffff:10.0.0.2", "", "web", "10.0.0.2:99999", "\x1b"} {
		f.Add(ActionSet, server, 3)
		f.Add(ActionUndo, server, -1)
		f.Add(ActionAdd, server, 1<<40)
	}
	f.Fuzz(func(t *testing.T, action, server string, weight int) {
		c := Command{Action: action, Server: server, Weight: &weight}
		if weight == -1 {
			c.Weight = nil
		}
		r, err := ParseRequest(c, "root")
		if err != nil {
			return
		}
		if r.All != (action == ActionUndo && server == "") || r.All == r.Server.Address.IsValid() || r.Server.Address.Zone() != "" {
			t.Errorf("%q %q is %+v", action, server, r)
		}
		if c.Weight != nil && (weight < 0 || weight > MaxWeight) || action == ActionSet && r.Weight == nil {
			t.Errorf("%q %q with the weight %d is %+v", action, server, weight, r)
		}
	})
}
