package model

import "slices"

// Outcome is what a client got.
type Outcome uint8

const (
	RefusedByRules    Outcome = iota // for the reason of a [Refusal]
	RefusedByEndpoint                // a reset in place of an answer
	NoAnswer                         // from the endpoint
	Served                           // the endpoint has answered
)

// OutcomeNames are the names of the outcomes.
var OutcomeNames = []string{"refused", "endpoint-refused", "unanswered", "served"}

func (o Outcome) String() string { return OutcomeNames[o] }

// Failed reports whether the client got no answer.
func (o Outcome) Failed() bool { return o != Served }

// Course is how a connection that the rules have sent to an endpoint went on. Its name is no
// name of a [Refusal].
type Course struct {
	Name    string
	Outcome Outcome
	// Text says what happened, and Advice what to do, if anything: parts of sentences.
	Text, Advice string
}

// Names of courses.
const (
	EndpointRefused = "endpoint-refused"
	Unanswered      = "unanswered"
	AnsweredOpen    = "answered"
	ClientClosed    = "client-closed"
	ServerClosed    = "server-closed"
	ClientReset     = "client-reset"
	ServerReset     = "server-reset"
	Expired         = "expired"
)

// Courses are all courses, in the order of documentation.
var Courses = []Course{
	{EndpointRefused, RefusedByEndpoint, "the endpoint refuses the connection", "see whether a program listens on that port of the endpoint, and on which addresses"},
	{Unanswered, NoAnswer, "the endpoint has not answered within 2 seconds", "see whether a filter drops the packets, and whether the answers return through this node; UDP servers may answer nothing"},
	{AnsweredOpen, Served, "the endpoint has answered, and the connection goes on", ""},
	{ClientClosed, Served, "the client has ended the connection", ""},
	{ServerClosed, Served, "the endpoint has ended the connection", ""},
	{ClientReset, Served, "the client has reset the connection", ""},
	{ServerReset, Served, "the endpoint has reset the connection", ""},
	{Expired, Served, "connection tracking has removed the connection: it was idle for long, or deleted", ""},
}

// CourseOf returns the course of a name, or nil.
func CourseOf(name string) *Course {
	i := slices.IndexFunc(Courses, func(c Course) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &Courses[i]
}

// OutcomeOf returns the outcome of a connection with a reason.
func OutcomeOf(reason string) Outcome {
	if c := CourseOf(reason); c != nil {
		return c.Outcome
	}
	return RefusedByRules
}

// ReasonNames returns the names of all refusals and courses.
func ReasonNames() []string {
	names := RefusalNames()
	for i := range Courses {
		names = append(names, Courses[i].Name)
	}
	return names
}

// ReasonText returns what happened to a connection with a reason, and what to do; false: no
// refusal or course has this name.
func ReasonText(name string) (text, advice string, ok bool) {
	if r := RefusalOf(name); r != nil {
		return r.Text, r.Advice, true
	}
	if c := CourseOf(name); c != nil {
		return c.Text, c.Advice, true
	}
	return "", "", false
}
