// Package words has the words for what a node serves. On a cluster these are Services with
// endpoints. On a machine without Kubernetes they are balances with servers: the words of
// the files, docs/standalone.md.
//
// All texts of the program have the words of Kubernetes, and a [Vocabulary] replaces them by
// its own. So there is one table of words, and one text for both. Only texts of the program go
// through it, before names and addresses are put into them: a Balance may be named endpoint.
package words

import (
	"fmt"
	"strings"
)

// Vocabulary is a set of words. The zero value has those of Kubernetes.
type Vocabulary uint8

// Vocabularies.
const (
	Kubernetes Vocabulary = iota // for a Service, of the API server or of a file
	Balance                      // for a Balance
	Mixed                        // for both together
)

// names are what documents call a vocabulary.
var names = [...]string{"", "balance", "mixed"}

// String returns the name in documents, empty for Kubernetes.
func (v Vocabulary) String() string { return names[v] }

// MarshalText returns [Vocabulary.String].
func (v Vocabulary) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads a name. One of a later version counts as Kubernetes.
func (v *Vocabulary) UnmarshalText(text []byte) error {
	*v = Kubernetes
	for i, name := range names {
		if name == string(text) {
			*v = Vocabulary(i)
		}
	}
	return nil
}

// Of returns the words for one object.
func Of(isBalance bool) Vocabulary {
	if isBalance {
		return Balance
	}
	return Kubernetes
}

// Among returns the words for several objects: all of them, and the ones that are Balances.
func Among(all, balances int) Vocabulary {
	switch {
	case balances == 0:
		return Kubernetes
	case balances < all:
		return Mixed
	}
	return Balance
}

// Text returns a text of the program in these words.
func (v Vocabulary) Text(text string) string {
	if v == Kubernetes {
		return text
	}
	return tables[v].replace(text)
}

// Sprintf formats with a format of the program in these words. The arguments stay as they are.
func (v Vocabulary) Sprintf(format string, args ...any) string {
	if v != Kubernetes {
		format = tables[v].replace(format)
	}
	return fmt.Sprintf(format, args...)
}

// Errorf is [fmt.Errorf] in these words.
func (v Vocabulary) Errorf(format string, args ...any) error {
	if v != Kubernetes {
		format = tables[v].replace(format)
	}
	return fmt.Errorf(format, args...)
}

// Count returns for example "1 server" or "3 servers" for the noun endpoint.
func (v Vocabulary) Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", v.Text(noun))
}

// Kind returns the kind of an address behind a name, in brackets. A Balance has one kind, which
// needs no mention.
func (v Vocabulary) Kind(kind string) string {
	if v == Balance || kind == "" {
		return ""
	}
	return " (" + kind + ")"
}

// replace returns a text with the words of the table. What is in quotes is of the user.
func (t table) replace(text string) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(text); {
		if n := quoted(text[i:]); n > 0 {
			i += n
			continue
		}
		from, to := t.at(text, i)
		if from == "" {
			i++
			continue
		}
		b.WriteString(text[done:i])
		b.WriteString(to)
		i += len(from)
		done = i
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// quoted returns the length of what a text begins with, if that is in quotes.
func quoted(text string) int {
	if text[0] != '"' && text[0] != '`' {
		return 0
	}
	if n := strings.IndexByte(text[1:], text[0]); n >= 0 {
		return n + 2
	}
	return 0
}

// at returns the longest words that a text has at a place, and what replaces them.
func (t table) at(text string, i int) (from, to string) {
	if i > 0 && inside(text[i-1]) {
		return "", ""
	}
	for _, row := range t[text[i]] {
		if rest, ok := strings.CutPrefix(text[i:], row[0]); ok && len(row[0]) > len(from) && (rest == "" || !inside(rest[0])) {
			from, to = row[0], row[1]
		}
	}
	return from, to
}

// inside reports whether a character next to a word makes it part of something else: a longer
// word, a flag, a path, a name or a value.
func inside(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_/=@\"`", c) >= 0
}

// rows are all words. A line has the ones of Kubernetes, of a Balance, and of both; an empty
// one stays as it is. Longer ones win.
var rows = [][3]string{
	{"a Service", "a Balance", "a Service or Balance"},
	{"Service", "Balance", "Service or Balance"},
	{"Services", "Balances", "Services and Balances"},
	{"Service of the API server", "Service of the API server", "Service of the API server"},
	{"service port", "port of a Balance", ""},
	{"service", "balance", "object"}, // the label of a fact
	{"SERVICE PORT", "BALANCE", "OBJECT"},
	{"SERVICE", "BALANCE", "OBJECT"},
	{"SERVICES", "BALANCES", "OBJECTS"},
	{"an endpoint", "a server", ""},
	{"endpoint", "server", ""},
	{"endpoints", "servers", ""},
	{"Endpoint", "Server", ""},
	{"Endpoints", "Servers", ""},
	{"ENDPOINT", "SERVER", ""},
	{"ENDPOINTS", "SERVERS", ""},
	{"load balancer IP", "address", ""},
	{"load balancer IPs", "addresses", ""},
	{"a ClusterIP", "an address", ""},
	{"ClusterIP", "address", ""},
	{"EndpointSlice", "list of servers", ""},
	{"EndpointSlices", "lists of servers", ""},
	{"Services and EndpointSlices", "Balances", "Services, EndpointSlices and Balances"},
	{"on other machines or in pods", "on other machines", ""},
	{"on another machine or in a pod", "on another machine", ""},
	{"pods on the bridge", "servers on the bridge", ""},
	{"clients or pods are reached by", "clients or servers are reached by", ""},
	{"the network configuration or the CNI plugin", "the network configuration", ""},
	{"load balancer addresses and external IPs", "addresses of Balances", ""},
	{"nftproxy.dev/source-ranges", "clients", ""},
	{"nftproxy.dev/denied-sources", "deny", ""},
	{"nftproxy.dev/on-failure: keep", "onFailure: keep", ""},
	{"neither a pod's nor in a source range", "in no list of clients", ""},
	{"a node", "a machine", ""},
	{"the node", "this machine", ""},
	{"the node itself", "this machine itself", ""},
	{"node", "machine", ""},
	{"nodes", "machines", ""},
}

// table has the words of a vocabulary by their first character.
type table map[byte][][2]string

var tables = [...]table{Balance: tableOf(1), Mixed: tableOf(2)}

func tableOf(column int) table {
	t := make(table)
	for _, row := range rows {
		if row[column] != "" {
			t[row[0][0]] = append(t[row[0][0]], [2]string{row[0], row[column]})
		}
	}
	return t
}
