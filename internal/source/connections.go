package source

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	// annotationMaxConnections on a Service is the most concurrent connections to each of
	// its addresses and ports, and annotationMaxConnectionsPerClient those from one
	// address of a client.
	annotationMaxConnections          = annotationDomain + "max-connections"
	annotationMaxConnectionsPerClient = annotationDomain + "max-connections-per-client"

	// annotationConnectionRate is the most new connections in a unit of time, second,
	// minute or hour, and how many may come together: as many as in one unit, if burst
	// is left out.
	//
	//	100/second
	//	100/second burst 20
	annotationConnectionRate          = annotationDomain + "connection-rate"
	annotationConnectionRatePerClient = annotationDomain + "connection-rate-per-client"
)

const (
	maxRate = 1_000_000
	// maxRefill bounds the time for which the kernel remembers a client.
	maxRefill = 24 * time.Hour
)

// limits reads the limits of a Service. One that cannot be read does not apply.
func (f *findings) limits(m *metav1.ObjectMeta) (l model.Limits) {
	limit(f, m, annotationMaxConnections, parseConnections, &l.Connections)
	limit(f, m, annotationMaxConnectionsPerClient, parseConnections, &l.ConnectionsPerClient)
	limit(f, m, annotationConnectionRate, parseRate, &l.Rate)
	limit(f, m, annotationConnectionRatePerClient, parseRate, &l.RatePerClient)
	return l
}

func limit[T any](f *findings, m *metav1.ObjectMeta, annotation string, parse func(string) (T, string), to *T) {
	text, given := m.Annotations[annotation]
	if !given {
		return
	}
	value, problem := parse(text)
	if problem != "" {
		f.warn(annotationField(annotation), text, problem+"; it does not apply")
		return
	}
	*to = value
}

func parseConnections(text string) (uint32, string) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil || n < 1 || n > budget.Connections {
		return 0, fmt.Sprintf("is not a number of connections: use 1 to %d", budget.Connections)
	}
	return uint32(n), ""
}

const notARate = "is not a rate of connections: write it like 100/second, 30/minute or 100/second burst 20"

// parseRate reads for example "100/second burst 20".
func parseRate(text string) (model.Rate, string) {
	words := strings.Fields(text)
	if len(words) != 1 && (len(words) != 3 || words[1] != "burst") {
		return model.Rate{}, notARate
	}
	digits, name, _ := strings.Cut(words[0], "/")
	unit := -1
	for u, known := range model.RateUnits {
		if name == known {
			unit = u
		}
	}
	amount, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || unit < 0 {
		return model.Rate{}, notARate
	}
	burst := amount
	if len(words) == 3 {
		if burst, err = strconv.ParseUint(words[2], 10, 32); err != nil {
			return model.Rate{}, notARate
		}
	}
	if amount < 1 || amount > maxRate || burst < 1 || burst > maxRate {
		return model.Rate{}, fmt.Sprintf("is out of range: use 1 to %d connections", maxRate)
	}
	r := model.Rate{Amount: uint32(amount), Burst: uint32(burst), Unit: model.RateUnit(unit)}
	if r.Refill() > maxRefill {
		return model.Rate{}, fmt.Sprintf("is not possible: at this rate, a burst of %[2]d is complete again only after %[1]s; allow at most 24h", r.Refill(), burst)
	}
	return r, ""
}

// BalanceLimits are the limits of a Balance.
type BalanceLimits struct {
	Connections          *int64 `json:"connections,omitempty"`
	ConnectionsPerClient *int64 `json:"connectionsPerClient,omitempty"`
	Rate                 string `json:"rate,omitempty"`
	RatePerClient        string `json:"ratePerClient,omitempty"`
}

// balanceLimits are the fields of the limits of a Balance, and their annotations.
var balanceLimits = []struct {
	field, annotation string
	text              func(*BalanceLimits) string // empty: the field is not given
	check             func(string) string
}{
	{"connections", annotationMaxConnections, func(l *BalanceLimits) string { return numberText(l.Connections) }, problemOf(parseConnections)},
	{"connectionsPerClient", annotationMaxConnectionsPerClient, func(l *BalanceLimits) string { return numberText(l.ConnectionsPerClient) }, problemOf(parseConnections)},
	{"rate", annotationConnectionRate, func(l *BalanceLimits) string { return l.Rate }, problemOf(parseRate)},
	{"ratePerClient", annotationConnectionRatePerClient, func(l *BalanceLimits) string { return l.RatePerClient }, problemOf(parseRate)},
}

func numberText(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// annotations returns the limits as annotations of a Service.
func (l *BalanceLimits) annotations() map[string]string {
	out := make(map[string]string)
	if l == nil {
		return out
	}
	for _, known := range balanceLimits {
		if text := known.text(l); text != "" {
			out[known.annotation] = text
		}
	}
	return out
}

// limits checks the limits.
func (e *expander) limits() {
	given := e.Limits.annotations()
	for _, known := range balanceLimits {
		text, ok := given[known.annotation]
		if !ok {
			continue
		}
		if problem := known.check(text); problem != "" {
			e.add("limits."+known.field, text, problem)
		}
	}
}

func problemOf[T any](parse func(string) (T, string)) func(string) string {
	return func(text string) string {
		_, problem := parse(text)
		return problem
	}
}

func limitsSchema() jsonSchema {
	rate := func(description string) jsonSchema {
		return schemaText(description, `^ *[0-9]+/(second|minute|hour)( +burst +[0-9]+)? *$`)
	}
	return jsonSchema{
		"description": "connection limits for each address and port; more are dropped",
		"type":        "object", "additionalProperties": false,
		"properties": jsonSchema{
			"connections":          schemaNumber("concurrent connections", 1, budget.Connections, nil),
			"connectionsPerClient": schemaNumber("concurrent connections from one address", 1, budget.Connections, nil),
			"rate":                 rate("new connections, like 100/second, or 100/second burst 20"),
			"ratePerClient":        rate("new connections from one address"),
		},
	}
}
