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
