package bundle

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzSecrets: 18.21. A password on a line of its own is removed from any text, and from any text in a document.
func FuzzSecrets(f *testing.F) {
	for _, s := range [][2]string{{"", ""}, {"users:\n- user:", "  name: u"}, {"a: |\n ", "b"}, {"-----BEGIN KEY-----", "-----END KEY-----"}, {"authorization: 'x", "'"}, {`"password": "a`, `"`}, {"token:\n", "\n"}, {"\u017fecret: \xff", "\r"}} {
		f.Add(s[0], s[1])
	}
	const secret = "hunter2-7c9e"
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before+after, secret) {
			return
		}
		text := before + "\npassword: " + secret + "\n" + after
		hostile.CheckMemory(t, len(text), 4096, func() {
			if got := WithoutSecrets(text); strings.Contains(got, secret) {
				t.Errorf("%q becomes %q", text, got)
			}
			document, err := json.Marshal(map[string]any{"data": map[string]string{"file": text}, "list": []string{text}})
			if err != nil {
				t.Fatal(err)
			}
			if got := WithoutSecretsJSON(string(document)); strings.Contains(got, secret) {
				t.Errorf("%s becomes %s", document, got)
			}
		})
	})
}
