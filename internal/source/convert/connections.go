package convert

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
	// AnnotationMaxConnections on a Service is the most concurrent connections to each of
	// its addresses and ports, and AnnotationMaxConnectionsPerClient those from one
	// address of a client.
	AnnotationMaxConnections          = AnnotationDomain + "max-connections"
	AnnotationMaxConnectionsPerClient = AnnotationDomain + "max-connections-per-client"

	// AnnotationConnectionRate is the most new connections in a unit of time, second,
	// minute or hour, and how many may come together: as many as in one unit, if burst
	// is left out.
	//
	//	100/second
	//	100/second burst 20
	AnnotationConnectionRate          = AnnotationDomain + "connection-rate"
	AnnotationConnectionRatePerClient = AnnotationDomain + "connection-rate-per-client"
)

const (
	maxRate = 1_000_000
	// maxRefill bounds the time for which the kernel remembers a client.
	maxRefill = 24 * time.Hour
)

// limits reads the limits of a Service. One that cannot be read does not apply.
func (f *Findings) limits(m *metav1.ObjectMeta) (l model.Limits) {
	limit(f, m, AnnotationMaxConnections, ParseConnections, &l.Connections)
	limit(f, m, AnnotationMaxConnectionsPerClient, ParseConnections, &l.ConnectionsPerClient)
	limit(f, m, AnnotationConnectionRate, ParseRate, &l.Rate)
	limit(f, m, AnnotationConnectionRatePerClient, ParseRate, &l.RatePerClient)
	return l
}

func limit[T any](f *Findings, m *metav1.ObjectMeta, annotation string, parse func(string) (T, string), to *T) {
	text, given := m.Annotations[annotation]
	if !given {
		return
	}
	value, problem := parse(text)
	if problem != "" {
		f.Warn(AnnotationField(annotation), text, problem+"; it does not apply")
		return
	}
	*to = value
}

func ParseConnections(text string) (uint32, string) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil || n < 1 || n > budget.Connections {
		return 0, fmt.Sprintf("is not a number of connections: use 1 to %d", budget.Connections)
	}
	return uint32(n), ""
}

const NotARate = "is not a rate of connections: write it like 100/second, 30/minute or 100/second burst 20"

// ParseRate reads for example "100/second burst 20".
func ParseRate(text string) (model.Rate, string) {
	words := strings.Fields(text)
	if len(words) != 1 && (len(words) != 3 || words[1] != "burst") {
		return model.Rate{}, NotARate
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
		return model.Rate{}, NotARate
	}
	burst := amount
	if len(words) == 3 {
		if burst, err = strconv.ParseUint(words[2], 10, 32); err != nil {
			return model.Rate{}, NotARate
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
