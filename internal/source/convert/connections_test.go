package convert

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestLimits reads connection limits: 4.85 to 4.87, 4.93.
func TestLimits(t *testing.T) {
	const (
		warning  = "warning: metadata.annotations[nftproxy.dev/"
		ignored  = "; the default applies"
		notARate = "is not a rate of connections: write it like 100/second, 30/minute or 100/second burst 20"
		number   = " is not a number of connections: use 1 to 50000" + ignored
		possible = " is out of range: use 1 to 1000000 connections" + ignored
	)
	var all []conversion
	for _, c := range []struct {
		name, annotations, want string
		errors                  []string
	}{
		{"connections", `max-connections: "1000"`, "Connections 1000", nil},
		{"connections per client", `max-connections-per-client: " 20 "`, "ConnectionsPerClient 20", nil},
		{"rate", `connection-rate: 100/second`, "Rate 100/second", nil},
		{"rate and burst", `connection-rate: 100/second burst 20`, "Rate 100/second burst 20", nil},
		{"rate per client", `connection-rate-per-client: " 30/minute  burst 1 "`, "RatePerClient 30/minute burst 1", nil},
		{"all", `max-connections: "3", max-connections-per-client: "2", connection-rate: 1/hour burst 4, connection-rate-per-client: 5/hour`,
			"Connections 3, ConnectionsPerClient 2, Rate 1/hour burst 4, RatePerClient 5/hour", nil},
		{"4.93 none", `max-connections: "0"`, "", []string{warning + `max-connections]: "0"` + number}},
		{"4.93 too many", `max-connections-per-client: "50001"`, "", []string{warning + `max-connections-per-client]: "50001"` + number}},
		{"4.93 no number", `max-connections: many, max-connections-per-client: "5"`, "ConnectionsPerClient 5", []string{warning + `max-connections]: "many"` + number}},
		{"4.93 no unit", `connection-rate: "100"`, "", []string{warning + `connection-rate]: "100" ` + notARate + ignored}},
		{"4.93 unknown unit", `connection-rate: 100/day`, "", []string{warning + `connection-rate]: "100/day" ` + notARate + ignored}},
		{"4.93 no burst", `connection-rate: 100/second burst`, "", []string{warning + `connection-rate]: "100/second burst" ` + notARate + ignored}},
		{"4.93 another word", `connection-rate: 100/second bursts 5`, "", []string{warning + `connection-rate]: "100/second bursts 5" ` + notARate + ignored}},
		{"4.93 empty", `connection-rate: ""`, "", []string{warning + `connection-rate]: "" ` + notARate + ignored}},
		{"4.93 nothing admitted", `connection-rate: 0/second`, "", []string{warning + `connection-rate]: "0/second"` + possible}},
		{"4.93 burst of none", `connection-rate: 1/second burst 0`, "", []string{warning + `connection-rate]: "1/second burst 0"` + possible}},
		{"4.93 far too many", `connection-rate: 4294967295/second`, "", []string{warning + `connection-rate]: "4294967295/second"` + possible}},
		{"4.93 a burst that takes days", `connection-rate: 1/hour burst 25`, "", []string{
			warning + `connection-rate]: "1/hour burst 25" is not possible: at this rate, a burst of 25 is complete again only after 25h0m0s; allow at most 24h` + ignored}},
	} {
		annotations := "nftproxy.dev/" + strings.ReplaceAll(c.annotations, ", ", ", nftproxy.dev/")
		all = append(all, conversion{c.name, `metadata: {annotations: {` + annotations + `}}`, c.want, c.errors})
	}
	run(t, `{metadata: {name: web, namespace: default}, spec: {clusterIP: 10.96.0.1}}`, all, func(s *corev1.Service) (any, []*manifest.FieldError) {
		service, found := Service(s, "")
		l := service.Extra().Limits
		return []string{strings.ReplaceAll(strings.TrimSpace(sourcetest.Describe(&l)), "\n", ", ")}, found
	})
}
