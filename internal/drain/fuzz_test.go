package drain

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzParse: any content is a list or has problems, which name the file and have no control characters; and a list is written so that it is
// read again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "kind: Drain", "kind: Drain\nendpoints:\n- endpoint: \"[fd00::2]:8080\"\n  service: shop/web\n  since: 2026-01-31T12:00:00+01:00",
		`{"kind": "Drain", "endpoints": [{"endpoint": "10.0.0.2"}, {"endpoint": "10.0.0.2"}]}`, "kind: Drain\nendpoints: [{endpoint: ::ffff:10.0.0.2, service: web}]",
		"kind: Drain\nendpoints: [{endpoint: 10.0.0.2, service: \"a/\\e[31m\"}]",
		"kind: Drain\nendpoints: []\nchanges: [{balance: web, server: 10.0.0.2, weight: 3, fileWeight: 1}, {balance: shop/web, server: \"[fd00::2]:80\", weight: 1, by: x}]",
		"kind: RuntimeChanges\nchanges: [{balance: web, server: 10.0.0.2, fileWeight: 1, since: 2026-01-31T12:00:00Z}]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var l Content
		var problems manifest.Errors
		hostile.CheckMemory(t, len(data), 16<<10, func() { l, problems = parse("drain.yaml", data) })
		if len(problems) > 0 {
			hostile.CheckText(t, problems.Error())
			if !strings.HasPrefix(problems.Error(), "drain.yaml") {
				t.Errorf("the problem does not name the file: %v", problems)
			}
			return
		}
		again, problems := parse("drain.yaml", []byte(l.text()))
		if len(problems) > 0 || again.text() != l.text() {
			t.Errorf("%q is written as %q, which is read as %v, %v", data, l.text(), again, problems)
		}
	})
}
