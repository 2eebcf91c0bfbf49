package main

import (
	"fmt"
	"slices"
	"strings"
)

// scenario is a size and a kind of Services.
type scenario struct {
	Name      string // may be empty
	Services  int
	Endpoints int // of each Service
	// Exposed makes every fourth Service a load balancer with a NodePort, and
	// lets clients stay on their endpoint.
	Exposed bool
}

// scenarios are the named ones. The first one is the base that the others are
// compared with.
var scenarios = []scenario{
	{Name: "base", Services: 1_000, Endpoints: 4},
	{Name: "A", Services: 10_000, Endpoints: 4},
	{Name: "AM", Services: 10_000, Endpoints: 4, Exposed: true},
	{Name: "B", Services: 5_006, Endpoints: 50},
	{Name: "C", Services: 44_128, Endpoints: 1},
	{Name: "D", Services: 100_000, Endpoints: 4},
	{Name: "E", Services: 250_000, Endpoints: 4},
}

// sweep are the numbers of Services, of 4 endpoints each, that show how costs
// grow.
var sweep = []int{100, 300, 1_000, 3_000, 10_000, 30_000, 100_000}

// sweepScenarios returns a scenario for each size of the sweep up to a limit.
func sweepScenarios(limit int) []scenario {
	var out []scenario
	for _, n := range sweep {
		if n <= limit {
			out = append(out, scenario{Services: n, Endpoints: 4})
		}
	}
	return out
}

// selectScenarios returns the scenarios with the names given, separated by
// commas, or of the size given as for example 50x2.
func selectScenarios(names string) ([]scenario, error) {
	var out []scenario
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.Name == name })
		if i >= 0 {
			out = append(out, scenarios[i])
			continue
		}
		var s scenario
		if n, err := fmt.Sscanf(name, "%dx%d", &s.Services, &s.Endpoints); err != nil || n != 2 || name != s.size() {
			return nil, fmt.Errorf("unknown scenario %q: use base, A, AM, B, C, D, E or a size such as 300x4", name)
		}
		if s.Services < minServices || s.Endpoints < 1 || s.Services*(s.Endpoints+1) > maxEndpoints {
			return nil, fmt.Errorf("scenario %s: use at least %d services of 1 endpoint, and at most %d endpoints",
				name, minServices, maxEndpoints)
		}
		out = append(out, s)
	}
	return out, nil
}

// size returns for example "300x4".
func (s scenario) size() string { return fmt.Sprintf("%dx%d", s.Services, s.Endpoints) }

// String names the scenario and its size for people.
func (s scenario) String() string {
	size := fmt.Sprintf("%d services x %d endpoints", s.Services, s.Endpoints)
	if s.Exposed {
		size += ", a quarter of them load balancers with NodePort and affinity"
	}
	if s.Name == "" {
		return size
	}
	return s.Name + ": " + size
}
