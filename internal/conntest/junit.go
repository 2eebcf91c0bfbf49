package conntest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// junitSuites is a document of JUnit's XML format, in the form that readers agree on.
type junitSuites struct {
	XMLName  xml.Name   `xml:"testsuites"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Errors   int        `xml:"errors,attr"`
	Time     string     `xml:"time,attr"` // seconds
	Suite    junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name      string       `xml:"name,attr"`
	ClassName string       `xml:"classname,attr"`
	Time      string       `xml:"time,attr"`
	Failure   *junitReason `xml:"failure"`
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
	time, tests := fmt.Sprintf("%.3f", r.Seconds), len(r.Cases)
	name := "nftproxy test " + r.Of
	suite := junitSuite{Name: name, Tests: tests, Failures: r.Failed, Skipped: r.Skipped, Time: time}
	for _, c := range r.Cases {
		suite.Cases = append(suite.Cases, c.junit())
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Name: name, Tests: tests, Failures: r.Failed, Skipped: r.Skipped, Time: time, Suite: suite}); err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Result) junit() junitCase {
	out := junitCase{
		Name: r.Name(), ClassName: r.Service, Time: fmt.Sprintf("%.3f", r.Seconds),
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
