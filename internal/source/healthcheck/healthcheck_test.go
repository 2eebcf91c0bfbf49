package healthcheck

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

const everyType = `use "tcp", "http", "https", "grpc", "udp", "dns", "exec" or "passive"`

// TestParseCheck: 3.30, each form of a health check, as it is printed, and each mistake,
// with its remedy.
func TestParseCheck(t *testing.T) {
	const times = " every 2s, timeout 1s, rise 2, fall 3"
	for _, c := range []struct{ text, want string }{
		{`tcp`, "tcp" + times},
		{`{tcp}`, "tcp" + times},
		{`{tcp: , port: 8080}`, "tcp on port 8080" + times},
		{`http`, "http GET /" + times},
		{`http: /healthz?full=1`, "http GET /healthz?full=1" + times},
		{`{"https": "/healthz", "port": 8443, "interval": "5s", "timeout": "3s", "rise": 1, "fall": 10}`,
			"https GET /healthz on port 8443 every 5s, timeout 3s, rise 1, fall 10"},
		{`{http, method: HEAD}`, "http HEAD /" + times},
		{`grpc`, "grpc" + times},
		{`{grpc: shop.Cart, tls: true, verify: true, host: cart.example.com}`, "grpc shop.Cart" + times},
		{`{udp: echo}`, "udp echo" + times},
		{`{udp, send: ping}`, "udp" + times},
		{`dns`, "dns . NS" + times},
		{`{dns: www.example.com}`, "dns www.example.com. A" + times},
		{`{dns: example.com., query: SOA, rcode: [NOERROR]}`, "dns example.com. SOA" + times},
		{`{exec: /usr/bin/true}`, "exec /usr/bin/true" + times},
		{`{exec: [/bin/sh, -c, 'test -e "$X"']}`, "exec /bin/sh" + times},
		{`passive`, "passive 5 of 10, left out for 10s at first"},
		{`{passive: 2 of 2, port: 8080, interval: 1m}`, "passive 2 of 2 on port 8080, left out for 1m at first"},
		{`{passive: 1 of 2}`, `.passive: "1 of 2" is not usable: write for example 5 of 10, from 2 of 2 to 64 of 64`},
		{`{passive: 5}`, `.passive: 5 is not usable: write for example 5 of 10, from 2 of 2 to 64 of 64`},
		{`{passive, interval: 500ms}`, `.interval: 500ms is too short for a passive check: use 1s to 1h`},
		{`{tcp, interval: 500ms}`, "tcp every 500ms, timeout 500ms, rise 2, fall 3"},

		{`tpc`, `"tpc" is not a type of health check (did you mean tcp?): ` + everyType},
		{`ping`, `"ping" is not a type of health check: ` + everyType},
		{`""`, `"" is not a type of health check: ` + everyType},
		{`5`, `is not a health check: write a type such as tcp, or a mapping such as {http: /healthz, interval: 5s}`},
		{``, `is not a health check: write a type such as tcp, or a mapping such as {http: /healthz, interval: 5s}`},
		{`[tcp]`, `is not a health check: write a type such as tcp, or a mapping such as {http: /healthz, interval: 5s}`},
		{`{1: 2}`, `is not a health check: write a type such as tcp, or a mapping such as {http: /healthz, interval: 5s}`},
		{`{interval: 5s}`, `has no type: add a field named like one, such as {http: /healthz}; ` + everyType},
		{`{htp: /healthz}`, `.htp: unknown field (did you mean http?)`},
		{`{tcp, http: /}`, `.http: is a second type beside tcp: an endpoint has one check`},
		{`{tcp: 8080}`, `.tcp: 8080 has no value: write {tcp}, and a port as {tcp, port: 8080}`},
		{`{tcp, intervall: 5s}`, `.intervall: unknown field (did you mean interval?)`},
		{`{tcp, color: red}`, `.color: unknown field: a check of type tcp has expect, expectHex, expectMatches, fall, interval, port, rise, send, sendHex, timeout, whenAllFail`},
		{`{tcp, status: 200}`, `.status: does not belong to a check of type tcp: leave it out, or use http or https`},
		{`{tcp, port: 0}`, `.port: 0 is not usable: use a whole number from 1 to 65535`},
		{`{tcp, port: "80"}`, `.port: "80" is text, not a number: leave out the quotes`},
		{`{tcp, port: 80.5}`, `.port: 80.5 is not usable: use a whole number from 1 to 65535`},
		{`{tcp, port: [80]}`, `.port: is not usable: use a whole number from 1 to 65535`},
		{`{tcp, port: 99999999999999999999}`, `.port: 1e+20 is not usable: use a whole number from 1 to 65535`},
		{`{tcp, interval: }`, `.interval: has no value: give one, or leave the field out`},
		{`{tcp, interval: 5}`, `.interval: 5 is not a duration: write it like 2s or 500ms`},
		{`{tcp, interval: 5 s}`, `.interval: "5 s" is not a duration: write it like 2s or 500ms`},
		{`{tcp, interval: 50ms}`, `.interval: "50ms" is out of range: use 100ms to 1h`},
		{`{tcp, timeout: 2m}`, `.timeout: "2m" is out of range: use 10ms to 1m`},
		{`{tcp, timeout: 3s}`, `.timeout: 3s is longer than the interval, 2s: give a longer interval, too`},
		{`{tcp, interval: 3s, timeout: 5s}`, `.timeout: 5s is longer than the interval, 3s: shorten it, or give a longer interval`},
		{`{tcp, rise: 0, fall: 101}`, ".fall: 101 is not usable: use a whole number from 1 to 100\n.rise: 0 is not usable: use a whole number from 1 to 100"},
		{`{tcp, whenAllFail: rejct}`, `.whenAllFail: "rejct" is unknown (did you mean reject?): use "use" or "reject"`},
		{`{tcp, send: PING}`, `.send: needs expect: without an answer, it does not matter what is sent`},
		{`{tcp, send: 5, expect: x}`, `.send: is not text: put it in quotes`},
		{`{tcp, expect: ""}`, `.expect: is empty: give a text, or leave the field out`},
		{`{tcp, send: a, sendHex: "61", expect: a}`, ".send: and sendHex set the same: leave one of them out\n.sendHex: and send set the same: leave one of them out"},
		{`{tcp, expectMatches: "(ok"}`, ".expectMatches: \"(ok\" is not a regular expression: missing closing ): `(ok`"},
		{`{udp, send: a, expectMatches: ok}`, ".expectMatches: does not belong to a check of type udp: leave it out, or use tcp"},
		{`{udp, sendHex: 0x}`, `.sendHex: "0x" is not hexadecimal: write two digits for each byte, in quotes, like "0a 1b"`},
		{`udp`, `needs send, because servers answer only what they understand: {udp, send: "ping"}, or {udp: echo} for an echo service`},
		{`{udp: ehco}`, `.udp: "ehco" is unknown (did you mean echo?): use "echo"`},
		{`{udp: echo, send: x}`, `.udp: "echo" sends and expects random text: leave out send and expect`},
		{`{http: healthz}`, `.http: "healthz" is not a path: begin with /, such as /healthz`},
		{`{http: "http://10.0.0.1/healthz"}`, `.http: "http://10.0.0.1/healthz" is a URL: give only its path, such as /healthz; host and port are fields of their own`},
		{`{http: "/a b"}`, `.http: "/a b" contains spaces, control characters or other than ASCII: remove or escape them`},
		{`{http: "/a#b"}`, `.http: "/a#b" is not a path: begin with /, such as /healthz`},
		{`{http, method: post}`, `.method: "post" is unknown: use "GET" or "HEAD"`},
		{`{http, status: 2xx}`, `.status: "2xx" is not a status of HTTP: write it like 200 or 200-399, or several in a list`},
		{`{http, status: 399-200}`, `.status: "399-200" is not a status of HTTP: write it like 200 or 200-399, or several in a list`},
		{`{http, status: [200, 700]}`, `.status: 700 is not a status of HTTP: write it like 200 or 200-399, or several in a list`},
		{`{http, status: []}`, `.status: is empty: give a status such as 200, or leave the field out`},
		{`{http, bodyMatches: "(ok"}`, ".bodyMatches: \"(ok\" is not a regular expression: missing closing ): `(ok`"},
		{`{http, host: "a:80"}`, `.host: "a:80" is not a host name: write it like www.example.com, without a port`},
		{`{http, verify: true}`, `.verify: does not belong to a check of type http: leave it out, or use https or grpc`},
		{`{https, verify: "yes"}`, `.verify: "yes" is not a truth value: use true or false, without quotes`},
		{`{grpc, verify: true}`, `.verify: true needs tls: true`},
		{`{dns: a..b}`, `.dns: "a..b" is not a name of DNS: write it like www.example.com`},
		{`{dns, query: a}`, `.query: "a" is unknown (did you mean A?): use "A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV" or "TXT"`},
		{`{dns, rcode: [NOERR]}`, `.rcode: "NOERR" is unknown (did you mean NOERROR?): use "NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED", "NOTIMP" or "FORMERR"`},
		{`exec`, `.exec: needs a program: write it like [/usr/local/bin/check, --verbose]`},
		{`{exec: []}`, `.exec: needs a program: write it like [/usr/local/bin/check, --verbose]`},
		{`{exec: [check]}`, `.exec: "check" is not an absolute path: begin with /, because there is no shell and no PATH to search`},
		{`{exec: [/bin/true, 5]}`, `.exec: 5 is not text: put it in quotes`},
	} {
		var value any
		if err := yaml.Unmarshal([]byte(c.text), &value); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		check, found := Parse("check", value)
		var got []string
		for _, e := range found {
			got = append(got, strings.TrimPrefix(strings.TrimPrefix(e.Error(), "check: "), "check"))
		}
		if check != nil {
			got = append(got, check.String())
		}
		if diff := cmp.Diff(c.want, strings.Join(got, "\n")); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

// TestParsedCheck: 3.30, the values of each type, and that JSON, with its numbers, gives
// the same as YAML.
func TestParsedCheck(t *testing.T) {
	timing := model.Check{Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
	request := func(change func(*model.HTTPCheck)) *model.HTTPCheck {
		h := &model.HTTPCheck{Method: "GET", Path: "/", Status: []model.StatusRange{{First: 200, Last: 399}}}
		change(h)
		return h
	}
	for _, c := range []struct {
		text string
		want func(c *model.Check)
	}{
		{`{tcp, send: "PING\r\n", expect: +PONG, whenAllFail: reject, port: 6379}`, func(c *model.Check) {
			c.Type, c.Send, c.Expect, c.AllFailing, c.Port = model.CheckTCP, "PING\r\n", "+PONG", model.RejectAll, 6379
		}},
		{`{udp, sendHex: "1b 00", expectHex: "ff"}`, func(c *model.Check) {
			c.Type, c.Send, c.Expect = model.CheckUDP, "\x1b\x00", "\xff"
		}},
		{`{udp: echo, whenAllFail: use}`, func(c *model.Check) { c.Type, c.Echo = model.CheckUDP, true }},
		{`{http: /x, status: [200, 300-302], body: ok, bodyMatches: ^ok$, host: www.example.com}`, func(c *model.Check) {
			c.Type, c.Host, c.HTTP = model.CheckHTTP, "www.example.com", request(func(h *model.HTTPCheck) {
				h.Path, h.Body, h.Matches, h.Status = "/x", "ok", "^ok$", []model.StatusRange{{First: 200, Last: 200}, {First: 300, Last: 302}}
			})
		}},
		{`{https, status: "200, 204", verify: true}`, func(c *model.Check) {
			c.Type, c.Verify, c.HTTP = model.CheckHTTPS, true, request(func(h *model.HTTPCheck) {
				h.Status = []model.StatusRange{{First: 200, Last: 200}, {First: 204, Last: 204}}
			})
		}},
		{`{grpc: a.B, tls: true, host: a.example.com}`, func(c *model.Check) {
			c.Type, c.Name, c.TLS, c.Host = model.CheckGRPC, "a.B", true, "a.example.com"
		}},
		{`{dns: a.example, rcode: NXDOMAIN}`, func(c *model.Check) {
			c.Type, c.Name, c.Query, c.Rcodes = model.CheckDNS, "a.example.", "A", []string{"NXDOMAIN"}
		}},
		{`{exec: [/bin/check, -v]}`, func(c *model.Check) { c.Type, c.Command = model.CheckExec, []string{"/bin/check", "-v"} }},
	} {
		want := timing
		c.want(&want)
		for form, value := range bothForms(t, c.text) {
			got, found := Parse("check", value)
			if len(found) > 0 || !reflect.DeepEqual(got, &want) {
				t.Errorf("%s as %s: %+v %v", c.text, form, got, sourcetest.Texts(found))
			}
		}
	}
}

// bothForms reads a value as the annotation does, and as the field of a document.
func bothForms(t *testing.T, text string) map[string]any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	var o struct {
		Check any `json:"check"`
	}
	docs, err := manifest.Split("file", []byte("check: "+text))
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	object, problem := docs[0].Parse()
	if problem != nil {
		t.Fatal(problem)
	}
	if problems := object.Decode(&o); len(problems) > 0 {
		t.Fatal(manifest.Errors(problems))
	}
	return map[string]any{"annotation": value, "field": o.Check}
}
