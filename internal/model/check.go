package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type CheckType uint8

const (
	CheckTCP     CheckType = iota + 1 // a connection, and perhaps an exchange of text
	CheckHTTP                         // a request over HTTP/1.1
	CheckHTTPS                        // the same over TLS
	CheckGRPC                         // grpc.health.v1.Health
	CheckUDP                          // a datagram, and its answer
	CheckDNS                          // a DNS query
	CheckExec                         // the exit code of a program
	CheckPassive                      // nothing is sent: what connections of clients met counts
)

// CheckTypes lists the types by name, in the order of the documentation.
var CheckTypes = [...]string{"tcp", "http", "https", "grpc", "udp", "dns", "exec", "passive"}

func (t CheckType) String() string {
	if t < CheckTCP || t > CheckPassive {
		return fmt.Sprintf("CheckType(%d)", uint8(t))
	}
	return CheckTypes[t-CheckTCP]
}

// Fits reports whether a check of this type can be made on a port of a protocol.
func (t CheckType) Fits(p Protocol) bool {
	switch t {
	case CheckExec:
		return true
	case CheckDNS:
		return p == TCP || p == UDP
	case CheckUDP:
		return p == UDP
	}
	return p == TCP
}

// AllFailing says whether endpoints serve when every one of a Service fails its check.
type AllFailing uint8

const (
	UseAll    AllFailing = iota // all take connections: the check may be wrong, and refusing helps no client
	RejectAll                   // connections are rejected
)

func (a AllFailing) String() string { return [...]string{"use", "reject"}[a] }

// Check is the health check of a Service: how to find out whether an endpoint can
// take connections. It is immutable. Each address is checked once, even if it has
// several ports.
type Check struct {
	Type CheckType
	// Port is the port of the endpoint to check; zero: the target of the first port of
	// the Service that fits the type.
	Port uint16

	Interval time.Duration // between the starts of two checks
	Timeout  time.Duration // of one check, at most the interval
	Rise     int           // successes in a row that end a failure
	Fall     int           // failures in a row that start one

	AllFailing AllFailing

	// Send and Expect are of CheckTCP and CheckUDP: the bytes to send, and bytes that the
	// answer has to contain; empty: none. They may be binary.
	Send, Expect string
	// ExpectMatches is of CheckTCP: a regular expression for the answer; empty: none.
	ExpectMatches string
	Echo          bool // of CheckUDP: sends random bytes, which have to come back

	HTTP *HTTPCheck // of CheckHTTP and CheckHTTPS, otherwise nil

	Name   string // of CheckGRPC: the service asked for, empty: the server; of CheckDNS: the queried name
	TLS    bool   // of CheckGRPC; CheckHTTPS implies it
	Verify bool   // certificates, by the roots of the system
	Host   string // header Host or :authority, and the name in TLS; empty: the address of the endpoint

	Query  string   // of CheckDNS: the type of the query, such as A
	Rcodes []string // of CheckDNS: the accepted response codes

	Command []string // of CheckExec: the program, by its path, and its arguments

	// Failures and Of are of CheckPassive: so many of the last sampled connections fail. Then
	// Interval is how long the endpoint is left out the first time.
	Failures, Of int
}

// Defaults of a [Check]. With them, an endpoint that refuses connections takes none after
// 3 seconds, and a silent one after 5.2 (3.25).
const (
	DefaultCheckInterval = 2 * time.Second
	DefaultCheckTimeout  = time.Second // or the interval, if that is shorter
	DefaultCheckRise     = 2
	DefaultCheckFall     = 3
)

const (
	DefaultPassiveInterval = 10 * time.Second
	DefaultPassiveFailures = 5
	DefaultPassiveOf       = 10
	MaxPassiveOf           = 64
)

// DefaultCheckStatus are the accepted status codes of HTTP, and DefaultCheckRcodes the
// response codes of DNS.
var (
	DefaultCheckStatus = StatusRange{First: 200, Last: 399}
	DefaultCheckRcodes = []string{"NOERROR", "NXDOMAIN"}
)

// HTTPCheck is a request with the expected response.
type HTTPCheck struct {
	Method string
	Path   string // with a query, perhaps
	Status []StatusRange
	// The body has to contain Body and to match the regular expression Matches; empty:
	// any body will do.
	Body, Matches string
}

// StatusRange is a range of accepted status codes of HTTP.
type StatusRange struct{ First, Last int }

func (r StatusRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Accepts reports whether a status code is one of the expected ones.
func (h *HTTPCheck) Accepts(status int) bool {
	return slices.ContainsFunc(h.Status, func(r StatusRange) bool { return status >= r.First && status <= r.Last })
}

// Expected lists the accepted status codes, for example "200-299 or 404".
func (h *HTTPCheck) Expected() string {
	var texts []string
	for _, r := range h.Status {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, " or ")
}

// What names the target of the check, for example "https GET /healthz on port 8443".
func (c *Check) What() string {
	text := c.Type.String()
	switch {
	case c.HTTP != nil:
		text += " " + c.HTTP.Method + " " + c.HTTP.Path
	case c.Type == CheckDNS:
		text += " " + c.Name + " " + c.Query
	case c.Type == CheckExec:
		text += " " + c.Command[0]
	case c.Name != "":
		text += " " + c.Name
	case c.Echo:
		text += " echo"
	case c.Type == CheckPassive:
		text += fmt.Sprintf(" %d of %d", c.Failures, c.Of)
	}
	if c.Port != 0 {
		text += fmt.Sprintf(" on port %d", c.Port)
	}
	return text
}

// String returns for example "http GET /healthz every 2s, timeout 1s, rise 2, fall 3".
func (c *Check) String() string {
	if c.Type == CheckPassive {
		return fmt.Sprintf("%s, left out for %s at first", c.What(), DurationText(c.Interval))
	}
	return fmt.Sprintf("%s every %s, timeout %s, rise %d, fall %d", c.What(), c.Interval, c.Timeout, c.Rise, c.Fall)
}

// CheckSetting is a setting of a check, in words.
type CheckSetting struct {
	Name, Value string
	Usual       string // the value if the check does not say another one
}

// Settings returns all settings in a fixed order that depends on the type alone: the
// interval first. With
// [Check.What] they say all about the check.
func (c *Check) Settings() []CheckSetting {
	if c.Type == CheckPassive { // its failures are what it is about
		return []CheckSetting{{"interval", DurationText(c.Interval), DurationText(c.Interval)}}
	}
	usualTimeout := min(DefaultCheckTimeout, c.Interval)
	out := []CheckSetting{
		{"interval", DurationText(c.Interval), DurationText(c.Interval)}, // which each text has
		{"timeout", DurationText(c.Timeout), DurationText(usualTimeout)},
		{"rise", fmt.Sprint(c.Rise), fmt.Sprint(DefaultCheckRise)},
		{"fall", fmt.Sprint(c.Fall), fmt.Sprint(DefaultCheckFall)},
		{"all fail:", c.AllFailing.String(), UseAll.String()},
	}
	text := func(name, value string) {
		out = append(out, CheckSetting{name, quoteOrNone(value), quoteOrNone("")})
	}
	flag := func(name string, value bool) {
		out = append(out, CheckSetting{name, fmt.Sprint(value), fmt.Sprint(false)})
	}
	switch c.Type {
	case CheckTCP, CheckUDP:
		text("send", c.Send)
		text("expect", c.Expect)
		text("expect matches", c.ExpectMatches)
	case CheckHTTP, CheckHTTPS:
		out = append(out, CheckSetting{"status", c.HTTP.Expected(), DefaultCheckStatus.String()})
		text("body", c.HTTP.Body)
		text("body matches", c.HTTP.Matches)
	case CheckDNS:
		out = append(out, CheckSetting{"rcode", strings.Join(c.Rcodes, " or "), strings.Join(DefaultCheckRcodes, " or ")})
	case CheckExec:
		out = append(out, CheckSetting{"arguments", fmt.Sprintf("%q", c.Command[1:]), fmt.Sprintf("%q", []string{})})
	}
	if c.Type == CheckGRPC {
		flag("tls", c.TLS)
	}
	if c.Type == CheckGRPC || c.HTTP != nil {
		text("host", c.Host)
		flag("verify", c.Verify)
	}
	return out
}

// DurationText returns d as a text for people and files: 1h, not 1h0m0s.
func DurationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func quoteOrNone(text string) string {
	if text == "" {
		return "none"
	}
	return fmt.Sprintf("%q", text)
}

// NotChecked begins the message of a result of an endpoint that is not checked.
const NotChecked = "not checked: "

// CheckResult is the result of the checks of an endpoint, kept beside the model. Its effect
// on connections is [Host.Failing].
type CheckResult struct {
	Healthy bool
	Since   time.Time // of this state; zero: not checked yet
	Message string    // why the last check failed, or was not made; empty: it passed
	Checked time.Time // end of the last check; zero: not checked yet
}

func (r CheckResult) Why() string {
	if r.Message == "" {
		return "it passes again, but not for long enough"
	}
	return r.Message
}

// String returns for example "GET /healthz: status 503 (since 12:01:03)". Times of other
// days have a date.
func (r CheckResult) String() string {
	since, now := r.Since.Local(), r.Checked.Local()
	layout := time.TimeOnly
	if since.YearDay() != now.YearDay() || since.Year() != now.Year() {
		layout = time.DateTime
	}
	return fmt.Sprintf("%s (since %s)", r.Why(), since.Format(layout))
}
