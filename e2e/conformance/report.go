package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// outcome is what came of a test.
type outcome struct {
	State   string  `json:"state"` // passed, failed, skipped
	Seconds float64 `json:"seconds"`
	Again   bool    `json:"again,omitempty"`  // it failed first and passed when it was repeated
	Reason  string  `json:"reason,omitempty"` // of a test that did not pass
}

const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// result is a run of the tests in one cluster.
type result struct {
	Proxy      kubelets.Proxy     `json:"proxy"`
	Version    string             `json:"version"`    // of the proxy
	Kubernetes string             `json:"kubernetes"` // the release of the tests and of the cluster
	Families   kubelets.Families  `json:"families"`
	Nodes      int                `json:"nodes"`
	Date       string             `json:"date"`
	Kernel     string             `json:"kernel"`
	Cores      int                `json:"cores"`
	Minutes    float64            `json:"minutes"`
	Tests      map[string]outcome `json:"tests"` // by the name that Kubernetes gives them
}

// readReport reads the report of ginkgo about tests without those that were left
// out. The types are documented at
// pkg.go.dev/github.com/onsi/ginkgo/v2/types#Report.
func readReport(file string, left omissions) (*result, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []spec
	}
	if err := json.Unmarshal(content, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	r := &result{Tests: map[string]outcome{}}
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			if name := s.name(); s.LeafNodeType != "It" {
				if s.State != passed {
					return nil, fmt.Errorf("%s of the tests %s: %s", s.LeafNodeType, s.State, s.Failure.Message)
				}
			} else if o, ok := s.outcome(left); ok {
				r.Tests[name] = o
			}
		}
	}
	return r, nil
}

// spec is a test in ginkgo's report.
type spec struct {
	ContainerHierarchyTexts    []string
	LeafNodeType, LeafNodeText string
	State                      string
	RunTime                    time.Duration
	NumAttempts                int
	Failure                    struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// directories matches the directories of the test machine in front of a file name.
var directories = regexp.MustCompile(`(^|[\s=])/\S*/`)

// outcome is false for tests of which nothing is to be told: those of others.
func (s spec) outcome(left omissions) (outcome, bool) {
	if !strings.Contains(s.name(), "[sig-network]") {
		return outcome{}, false
	}
	message, _, _ := strings.Cut(strings.TrimSpace(s.Failure.Message), "\n")
	message = directories.ReplaceAllString(message, "$1")
	o := outcome{State: s.State, Seconds: s.RunTime.Round(time.Second / 10).Seconds(), Reason: message}
	switch {
	case s.State == passed:
		o.Reason, o.Again = "", s.NumAttempts > 1
	case s.State != skipped:
		o.State, o.Reason = failed, s.State+": "+message
	case message == "":
		if o.Reason = left.reason(s.name()); o.Reason == "" {
			return outcome{}, false // not selected
		}
	}
	return o, true
}

// describe adds the circumstances.
func (r *result) describe(c *kubelets.Cluster, proxy kubelets.Proxy, took time.Duration) {
	r.Proxy, r.Families, r.Nodes = proxy, c.Families, c.Nodes
	r.Date, r.Minutes = time.Now().UTC().Format(time.DateOnly), took.Round(time.Second).Minutes()
	if machine, err := results.ThisMachine(); err == nil {
		r.Kernel, r.Cores = machine.Kernel, machine.Cores
	}
	r.Kubernetes, r.Version = kubelets.KubernetesVersion, kubelets.KubernetesVersion
	if proxy == kubelets.NFTProxy {
		r.Version = c.Programs.NFTProxyVersion()
	}
}

func (r *result) count(state string) (n int) {
	for _, o := range r.Tests {
		if o.State == state {
			n++
		}
	}
	return n
}

// repeated counts the tests that passed only when they were repeated.
func (r *result) repeated() (n int) {
	for _, o := range r.Tests {
		if o.State == passed && o.Again {
			n++
		}
	}
	return n
}

// failed returns the tests that failed, each with its cluster.
func (r *result) failed() (names []string) {
	for name, o := range r.Tests {
		if o.State == failed {
			names = append(names, fmt.Sprintf("%s, %s: %s: %s", r.Proxy, r.Families, name, o.Reason))
		}
	}
	slices.Sort(names)
	return names
}

// print summarizes the run.
func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "%s %s, %s, tests of %s: %d passed (%d when repeated), %d failed, %d skipped, %.1f minutes\n", r.Proxy, r.Version,
		r.Families, r.Kubernetes, r.count(passed), r.repeated(), r.count(failed), r.count(skipped), r.Minutes)
	for _, f := range r.failed() {
		fmt.Fprintf(w, "  FAILED %s\n", f)
	}
	names := slices.SortedFunc(maps.Keys(r.Tests), func(a, b string) int { return -cmp.Compare(r.Tests[a].Seconds, r.Tests[b].Seconds) })
	for _, n := range names[:min(5, len(names))] {
		fmt.Fprintf(w, "  %5.0f s %s\n", r.Tests[n].Seconds, n)
	}
}
