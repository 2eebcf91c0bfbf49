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

// checkValue returns the field check of a Balance.
func (c check) checkValue() any {
	var out fields
	switch {
	case c.kind == "http" && c.tls:
		out = fields{{"https", cmp.Or(c.target, "/")}}
	case c.kind == "http":
		out = fields{{"http", cmp.Or(c.target, "/")}}
	case c.target != "":
		out = fields{{c.kind, c.target}}
	default:
		out = fields{{cmp.Or(c.kind, "tcp"), nil}}
	}
	var status any = c.status
	if list := strings.FieldsFunc(c.status, func(r rune) bool { return r == ',' || r == ' ' }); len(list) > 1 {
		status = list
	}
	limit := cmp.Or(c.interval, defaultInterval) // a longer timeout is an error
	for _, f := range (fields{
		{"method", c.method}, {"host", c.host}, {"status", status}, {"body", c.body}, {"bodyMatches", c.bodyMatches}, {"query", c.query}, {"rcode", c.rcode},
		{"send", c.send}, {"expect", c.expect}, {"expectMatches", c.expectMatches}, {"port", c.port}, {"rise", c.rise}, {"fall", c.fall},
		{"interval", textOf(c.interval)}, {"timeout", textOf(min(cmp.Or(c.timeout, limit), limit))},
		{"whenAllFail", "reject"}, // as the other programs do
	}) {
		if f.value != "" && f.value != 0 {
			out = append(out, f)
		}
	}
	return out
}

// textOf returns a duration as a text; empty: zero.
func textOf(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return model.DurationText(d)
}

// fields is a mapping that keeps its order.
type fields []field

type field struct {
	name  string
	value any
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
