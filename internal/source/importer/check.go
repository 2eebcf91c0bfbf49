package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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

// MarshalJSON implements [json.Marshaler]: it returns the field check of a Balance.
func (c check) MarshalJSON() ([]byte, error) {
	kind, target := cmp.Or(c.kind, "tcp"), any(c.target)
	switch {
	case kind == "http":
		target = cmp.Or(c.target, "/")
		if c.tls {
			kind = "https"
		}
	case c.target == "":
		target = nil
	}
	var status any = c.status
	if list := strings.FieldsFunc(c.status, func(r rune) bool { return r == ',' || r == ' ' }); len(list) > 1 {
		status = list
	}
	limit := cmp.Or(c.interval, defaultInterval) // a longer timeout is an error
	out := []byte("{")
	for field := range slices.Chunk([]any{
		kind, target, "method", c.method, "host", c.host, "status", status, "body", c.body, "bodyMatches", c.bodyMatches, "query", c.query, "rcode", c.rcode,
		"send", c.send, "expect", c.expect, "expectMatches", c.expectMatches, "port", c.port, "rise", c.rise, "fall", c.fall,
		"interval", textOf(c.interval), "timeout", textOf(min(cmp.Or(c.timeout, limit), limit)),
		"whenAllFail", "reject", // as the other programs do
	}, 2) {
		if field[1] == "" || field[1] == 0 {
			continue
		}
		value, err := json.Marshal(field[1])
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "%q:%s,", field[0], value)
	}
	return append(bytes.TrimSuffix(out, []byte(",")), '}'), nil
}

// textOf returns a duration as a text; empty: zero.
func textOf(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return model.DurationText(d)
}
