package conntest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// junitSuites is a document of JUnit's XML format, in the form that readers agree on.
type junitSuites struct {
	XMLName xml.Name `xml:"testsuites"`
	junitTotals
	// Suites are one for each node, and one if there is a single machine.
	Suites []*junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	junitTotals
	Cases   []junitCase `xml:"testcase"`
	seconds float64
}

type junitTotals struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Skipped  int    `xml:"skipped,attr"`
	Errors   int    `xml:"errors,attr"`
	Time     string `xml:"time,attr"` // seconds
}

// junit returns the totals of cases that were tried, or skipped.
func (n Counts) junit(name string) junitTotals {
	return junitTotals{Name: name, Tests: n.Passed + n.Failed + n.Skipped, Failures: n.Failed, Skipped: n.Skipped}
}

type junitCase struct {
	Name      string       `xml:"name,attr"`
	ClassName string       `xml:"classname,attr"`
	Time      string       `xml:"time,attr"`
	Failure   *junitReason `xml:"failure"`
	Error     *junitReason `xml:"error"`
	Skipped   *junitReason `xml:"skipped"`
	Output    string       `xml:"system-out,omitempty"`
}

type junitReason struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// JUnit writes the report as JUnit's XML.
func (r *Report) JUnit(w io.Writer) error {
	name := "nftproxy test " + r.Of
	all := junitSuites{junitTotals: r.Counts.junit(name)}
	all.Errors, all.Time = len(r.Untested), seconds(r.Seconds)
	all.Tests += all.Errors
	suites := make(map[string]*junitSuite)
	for _, n := range r.Nodes {
		suites[n.Name] = &junitSuite{junitTotals: n.junit(name + " on " + n.Name)}
		all.Suites = append(all.Suites, suites[n.Name])
	}
	if len(r.Nodes) == 0 {
		suites[""] = &junitSuite{junitTotals: r.Counts.junit(name)}
		all.Suites = append(all.Suites, suites[""])
	}
	for _, c := range r.Cases {
		s := suites[c.Node]
		s.Cases, s.seconds = append(s.Cases, c.junit()), s.seconds+c.Seconds
	}
	for _, s := range all.Suites {
		s.Time = seconds(s.seconds)
	}
	for _, u := range r.Untested {
		all.Suites = append(all.Suites, u.junit(name))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(n float64) string { return fmt.Sprintf("%.3f", n) }

// junit returns the suite of a node that was not tested.
func (r Reason) junit(name string) *junitSuite {
	return &junitSuite{junitTotals: junitTotals{Name: name + " on " + r.Node, Tests: 1, Errors: 1, Time: seconds(0)}, Cases: []junitCase{{
		Name: "start the clients on " + r.Node, ClassName: r.Node, Time: seconds(0), Error: &junitReason{Message: r.Reason, Type: "node", Text: r.Reason}}}}
}

func (r *Result) junit() junitCase {
	out := junitCase{
		Name: r.Name(), ClassName: r.Service, Time: seconds(r.Seconds),
		Output: fmt.Sprintf("expected: %s\ngot: %s", &r.Expected, r.Got),
	}
	text := strings.Join(r.Reasons, "\n")
	switch r.State {
	case NotPassed:
		out.Failure = &junitReason{Message: r.Reasons[0], Type: "connection", Text: text}
	case NotTried:
		out.Skipped = &junitReason{Message: text}
	}
	return out
}
