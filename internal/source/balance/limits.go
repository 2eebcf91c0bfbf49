package balance

import (
	"strconv"

	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// Limits are the limits of a Balance.
type Limits struct {
	Connections          *int64 `json:"connections,omitempty"`
	ConnectionsPerClient *int64 `json:"connectionsPerClient,omitempty"`
	Rate                 string `json:"rate,omitempty"`
	RatePerClient        string `json:"ratePerClient,omitempty"`
}

// balanceLimits are the fields of the limits of a Balance, and their annotations.
var balanceLimits = []struct {
	field, annotation string
	text              func(*Limits) string // empty: the field is not given
	check             func(string) string
}{
	{"connections", convert.AnnotationMaxConnections, func(l *Limits) string { return numberText(l.Connections) }, problemOf(convert.ParseConnections)},
	{"connectionsPerClient", convert.AnnotationMaxConnectionsPerClient, func(l *Limits) string { return numberText(l.ConnectionsPerClient) }, problemOf(convert.ParseConnections)},
	{"rate", convert.AnnotationConnectionRate, func(l *Limits) string { return l.Rate }, problemOf(convert.ParseRate)},
	{"ratePerClient", convert.AnnotationConnectionRatePerClient, func(l *Limits) string { return l.RatePerClient }, problemOf(convert.ParseRate)},
}

func numberText(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// annotations returns the limits as annotations of a Service.
func (l *Limits) annotations() map[string]string {
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
			e.Add("limits."+known.field, text, problem)
		}
	}
}

func problemOf[T any](parse func(string) (T, string)) func(string) string {
	return func(text string) string {
		_, problem := parse(text)
		return problem
	}
}
