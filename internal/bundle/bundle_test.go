package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/tarball"
)

// TestSecrets: 18.21. Texts that give access are removed from everything that is added.
func TestSecrets(t *testing.T) {
	const jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl"
	for _, c := range []struct{ text, secret, stays string }{
		{"Authorization: Bearer " + jwt, jwt, "Authorization"},
		{"token=" + jwt + " node=n1", jwt, "node=n1"},
		{"seen " + jwt + " in a log", jwt, "in a log"},
		{`{"password":"hunter \"22","user":"a"}`, "hunter", `"user":"a"`},
		{"http://admin:hunter2@10.0.0.1/x", "hunter2", "10.0.0.1/x"},
		{"kubeadm join --token abcdef.0123456789abcdef", "0123456789abcdef", "kubeadm join"},
		{"client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo=\nname: x", "LS0tLS1CRUdJTi", "name: x"},
		{"a\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nxyz\n-----END EC PRIVATE KEY-----\nb", "MHcCAQEE", "\nb"},
		{"a\n-----BEGIN CERTIFICATE-----\nMHcCAQEE\nlost", "lost", "a\n"},
		{"X-Api-Key: 12345\nHost: web", "12345", "Host: web"},
		{"Cookie: session=abc", "abc", "Cookie"},
		{"--oidc-client-secret=s3cr3t --v=2", "s3cr3t", "--v=2"},
		{"password: correct horse battery\nuser: a", "battery", "user: a"},
		{"- password: correct, horse battery\n  user: a", "battery", "  user: a"},
		{"{password: correct horse battery, user: a}", "battery", "user: a"},
		{"PASSWORD=correct horse battery", "battery", "PASSWORD"},
		{"Authorization: Negotiate YIIabcdefSECRET9\nHost: web", "YIIabcdef", "Host: web"},
		{"Proxy-Authorization: Custom a b c", "b c", "Proxy-Authorization"},
		{`curl -H "Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature=feed" http://web`, "feed", "http://web"},
		{`error="Get x: Authorization: Digest username=a, response=feed" node=n1`, "feed", "node=n1"},
		{`Authorization: Digest username="a", response="feed"`, "feed", "Authorization"},
		{"users:\n- user:\n    password: |\n      hunter2line\n\n      second\n    name: u", "hunter2line", "name: u"},
		{"password: |\n  hunter2line\ncmd: x", "hunter2line", "cmd: x"},
		{"password: >-  # folded\n  a: hunter2line\ncmd: x", "hunter2line", "cmd: x"},
		{"password:\n  hunter2line\ncmd: x", "hunter2line", "cmd: x"},
		{"password: correct\n  hunter2line\ncmd: x", "hunter2line", "cmd: x"},
		{"secret:\n  name: visible\n", "\x00", "name: visible"},
		{"cmd: [check, --password, hunter3]\nuser: a", "hunter3", "user: a"},
		{`cmd: ["check", "--password", "hunter3 4"]`, "hunter3", "check"},
		{"cmd:\n- check\n- --api-key\n- hunter3\n- --v", "hunter3", "- --v"},
		{"check --password hunter3 --host web", "hunter3", "--host web"},
	} {
		checkStems(t, c.text)
		got := WithoutSecrets(c.text)
		if strings.Contains(got, c.secret) || !strings.Contains(got, c.stays) || c.secret != "\x00" && !strings.Contains(got, removed) {
			t.Errorf("%q becomes %q", c.text, got)
		}
	}
	if text := `level=INFO msg="rules applied" added=3 object="Service shop/web"`; WithoutSecrets(text) != text {
		t.Errorf("%q becomes %q", text, WithoutSecrets(text))
	}
	got := WithoutSecretsJSON(`{"password":"x y","list":[{"apiToken":"z","n":1.50}],"data":{"file":"users:\n  token: abc\n  name: u"}}`)
	if !json.Valid([]byte(got)) || strings.Contains(got, "x y") || strings.Contains(got, `"z"`) || strings.Contains(got, "abc") || !strings.Contains(got, "1.50") || !strings.Contains(got, "name: u") {
		t.Error(got)
	}
	for _, text := range []string{`{"token":"abc`, `{"args":["check","--password","abc","--v"]}`, `{"message":"password: |\n  abc\nx"}`} {
		if got := WithoutSecretsJSON(text); strings.Contains(got, "abc") {
			t.Error(got)
		}
	}
}

// checkStems: where an expression finds a secret, the text has what WithoutSecrets looks for before, in each case.
func checkStems(t *testing.T, text string) {
	t.Helper()
	for _, text := range []string{text, strings.ToUpper(text), strings.NewReplacer("s", "\u017f", "k", "\u212a").Replace(text)} {
		lower := foldCase(text)
		for _, s := range secrets {
			if s.expression.MatchString(text) && !hasOne(lower, s.has) {
				t.Errorf("%s is in %q, and none of %q", s.expression, text, s.has)
			}
		}
		for _, e := range append(settings, secretName) {
			if e.MatchString(text) && !hasOne(lower, stems) {
				t.Errorf("%s is in %q, and none of the stems", e, text)
			}
		}
		if withoutBlocks(text) != text && !hasOne(lower, stems) {
			t.Errorf("%q has blocks, and none of the stems", text)
		}
	}
}

// TestStems: each word has a stem, so a text without stems has no words.
func TestStems(t *testing.T) {
	for word := range strings.SplitSeq(words, "|") {
		for _, between := range []string{"", "-", "_"} {
			text := strings.ReplaceAll(word, "[_-]?", between)
			if !secretName.MatchString(text) || !hasOne(text, stems) {
				t.Errorf("%q has no stem, or is no word", text)
			}
		}
	}
}

// TestLimits: 18.23. Files, nodes and the whole have a size, and contents.txt has what was cut
// and what is missing.
func TestLimits(t *testing.T) {
	var b bytes.Buffer
	a := New(&b, "bundle", "nftproxy 1.2.3", Limits{File: 100, Group: 150, Whole: 260})
	line := "0123456 89\n"
	a.Add("nodes/n1", "log.txt", []byte("first\n"+strings.Repeat(line, 20)+"last\n"), nil)
	a.Add("nodes/n1", "rules.txt", []byte("first\n"+strings.Repeat(line, 20)+"last\n"), nil)
	a.Add("nodes/n2", "short.txt", []byte("token: abc\n"), nil)
	a.Lack("nodes/n2", "status.json", errors.New("no answer\nwithin 5s"))
	for i := range 9 {
		a.Add("nodes/n3", fmt.Sprintf("f%d.txt", i), []byte(strings.Repeat(line, 5)), nil)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files, sum := tarball.Read(t, b.Bytes()), 0
	for name, f := range files {
		text := f.Content
		if name != "bundle/contents.txt" {
			sum += len(text)
		}
		if strings.Contains(text, "abc") || strings.HasPrefix(text, "\n") || len(text) > len(line) && !strings.HasSuffix(text, "\n") {
			t.Errorf("%s: %q", name, text)
		}
	}
	log, rules := files["bundle/nodes/n1/log.txt"].Content, files["bundle/nodes/n1/rules.txt"].Content
	if len(log) > 100 || strings.Contains(log, "first") || !strings.HasSuffix(log, "last\n") {
		t.Errorf("the log is %q", log)
	}
	if len(log)+len(rules) > 150 || len(rules) == 0 || !strings.HasPrefix(rules, "first") {
		t.Errorf("the rules are %q", rules)
	}
	if sum > 260 {
		t.Errorf("%d bytes", sum)
	}
	contents := files["bundle/contents.txt"].Content
	for _, want := range []string{"nftproxy 1.2.3", "nodes/n1/log.txt  cut: the last", "nodes/n1/rules.txt  cut: the first", "nodes/n2/status.json  missing: no answer; within 5s", fmt.Sprintf("%d files are cut, 1 are missing", a.Cut)} {
		if !strings.Contains(contents, want) {
			t.Errorf("%q is not in\n%s", want, contents)
		}
	}
}

// TestMember: a file that a node names stays below the directory of its group, or is refused.
func TestMember(t *testing.T) {
	var b bytes.Buffer
	a := New(&b, "bundle", "", DefaultLimits)
	for _, name := range []string{"describe/a/../../../../../../etc/cron.d/evil.json", "/etc/cron.d/evil", "a//b", ".", "..", "a\xff", "a/./b", ""} {
		a.Add("machine", name, []byte("x"), nil)
	}
	a.Add("nodes/../..", "evil", []byte("x"), nil)
	a.Add("machine", "describe/shop/web.json", []byte("x"), nil)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files := tarball.Read(t, b.Bytes())
	if len(files) != 2 || files["bundle/machine/describe/shop/web.json"].Content != "x" || strings.Count(files["bundle/contents.txt"].Content, "missing: refused") != 9 {
		t.Errorf("%+v", files)
	}
}

// TestSubject: only names of objects become paths of an archive, and paths of an API server.
func TestSubject(t *testing.T) {
	of := func(namespace, name string) model.Object {
		return model.ServiceName{Namespace: namespace, Name: name}.Object()
	}
	for object, want := range map[model.Object]string{
		of("shop", "web"): "shop/web", of("a", "web.v-1"): "a/web.v-1", {Kind: "Balance", Namespace: "default", Name: "web"}: "",
		of("a", "../../../../../../etc/cron.d/evil"): "", of("..", "x"): "", of("a", ".."): "", of("a", "b/c"): "", of("a", "web?x=1"): "",
		of("", "web"): "", of("a", ""): "", of("", "shop"): "", {Kind: "Node", Namespace: "n", Name: "n"}: "", of("a", "evil:80"): "", of("A", "web"): "", of("a.b", "web"): "",
		of("a", strings.Repeat("a", 254)): "", of(strings.Repeat("a", 64), "a"): "", of("a", "b\n"): "", of("a", "b..c"): "", {}: "",
	} {
		got := ""
		if s, ok := NewSubject(object); ok {
			got = s.Path()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", object, got, want)
		}
	}
}

// TestObject: 18.21. Objects have what matters here, and Secrets are refused, whatever they are
// said to be.
func TestObject(t *testing.T) {
	var o map[string]any
	text := `{"kind":"DaemonSet","metadata":{"labels":{"team":"x","k8s-app":"nftproxy"},"annotations":{"note":"x"},"managedFields":[]},"spec":{"containers":[{"env":[{"name":"A","value":"x"}]}]}}`
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	got, err := Object("DaemonSet", o)
	if err != nil || strings.Contains(string(got), `"x"`) || strings.Contains(string(got), "managed") || !strings.Contains(string(got), `"A"`) || !strings.Contains(string(got), "k8s-app") {
		t.Errorf("%v: %s", err, got)
	}
	for _, kind := range []string{"Secret", "ConfigMap"} {
		if got, err := Object(kind, map[string]any{"kind": "Secret", "data": map[string]any{"a": "b"}}); err == nil {
			t.Errorf("a Secret as %s: %s", kind, got)
		}
	}
}
