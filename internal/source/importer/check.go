package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// check is a health check of another program.
type check struct {
	kind         string // of nftproxy; empty: tcp
	tls          bool
	port         int
	interval     time.Duration
	timeout      time.Duration
	rise, fall   int
	target       string // path, or name that is asked for
	method, host string
	status, body string
	bodyMatches  string
	query, rcode string
	send, expect string

	expectMatches string
}

// defaultInterval is that of checks, in HAProxy, too.
const defaultInterval = 2 * time.Second

// value returns the field check of a Balance.
func (c check) value() any {
	var out fields
	switch {
	case c.kind == "http" && c.tls:
		out.add("https", cmp.Or(c.target, "/"))
	case c.kind == "http":
		out.add("http", cmp.Or(c.target, "/"))
	case c.target != "":
		out.add(c.kind, c.target)
	default:
		out = append(out, field{cmp.Or(c.kind, "tcp"), nil})
	}
	for _, f := range []struct{ name, text string }{
		{"method", c.method}, {"host", c.host}, {"body", c.body}, {"bodyMatches", c.bodyMatches},
		{"query", c.query}, {"rcode", c.rcode}, {"send", c.send}, {"expect", c.expect}, {"expectMatches", c.expectMatches},
	} {
		out.add(f.name, f.text)
	}
	if list := strings.FieldsFunc(c.status, func(r rune) bool { return r == ',' || r == ' ' }); len(list) == 1 {
		out.add("status", list[0])
	} else if len(list) > 1 {
		out = append(out, field{"status", list})
	}
	limit := cmp.Or(c.interval, defaultInterval) // a longer timeout is an error
	c.timeout = min(cmp.Or(c.timeout, limit), limit)
	for _, f := range []struct {
		name string
		n    int
	}{{"port", c.port}, {"rise", c.rise}, {"fall", c.fall}} {
		if f.n > 0 {
			out = append(out, field{f.name, f.n})
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"interval", c.interval}, {"timeout", c.timeout}} {
		if f.d > 0 {
			out.add(f.name, model.DurationText(f.d))
		}
	}
	out.add("whenAllFail", "reject") // as the other programs do
	return out
}

// fields is a mapping that keeps its order.
type fields []field

type field struct {
	name  string
	value any
}

// add adds a field that is given.
func (f *fields) add(name, text string) {
	if text != "" {
		*f = append(*f, field{name, text})
	}
}

// MarshalJSON implements [json.Marshaler].
func (f fields) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	for i, one := range f {
		text, err := json.Marshal(one.value)
		if err != nil {
			return nil, err
		}
		out.WriteByte("{,"[min(i, 1)])
		name, _ := json.Marshal(one.name) // always possible
		out.Write(append(append(name, ':'), text...))
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}
