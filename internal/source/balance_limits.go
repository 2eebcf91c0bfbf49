package source

import "strconv"

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
