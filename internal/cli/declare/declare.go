// Package declare gives flags their group in the help of a command, and the values that a shell completes.
package declare

import "github.com/spf13/pflag"

// A Group is the title of flags that belong together in the help.
type Group string

// The groups.
const (
	Own              Group = "Flags" // of one command
	Input            Group = "Input"
	APIServer        Group = "API server"
	Nodes            Group = "Nodes"
	NodeAndPods      Group = "Node and pods"
	Clients          Group = "Clients"
	Balancing        Group = "Balancing"
	Relay            Group = "Relay"
	Syncs            Group = "Syncs"
	Balances         Group = "Balances"
	Names            Group = "Names of servers"
	HealthAndMetrics Group = "Health and metrics"
	Refused          Group = "Refused connections"
	Process          Group = "Connection tracking and process"
	Output           Group = "Output"
	Log              Group = "Log"
	Other            Group = "Other"
)

// Groups are all groups, in the order of the help.
var Groups = []Group{Own, Input, APIServer, Nodes, NodeAndPods, Clients, Balancing, Relay, Syncs, Balances, Names, HealthAndMetrics, Refused, Process, Output, Log, Other}

// Keys of annotations.
const (
	groupKey  = "group"
	valuesKey = "values"
)

// In puts the flags that add adds to f into a group, unless they have one.
func In(f *pflag.FlagSet, group Group, add func()) {
	before := make(map[string]bool)
	f.VisitAll(func(g *pflag.Flag) { before[g.Name] = true })
	add()
	f.VisitAll(func(g *pflag.Flag) {
		if !before[g.Name] && g.Annotations[groupKey] == nil {
			Put(g, group)
		}
	})
}

// Put puts a flag into a group.
func Put(g *pflag.Flag, group Group) { annotate(g, groupKey, string(group)) }

// GroupOf returns the group of a flag; empty: none.
func GroupOf(g *pflag.Flag) Group {
	if of := g.Annotations[groupKey]; of != nil {
		return Group(of[0])
	}
	return ""
}

// Values sets the values that a shell completes for a flag. A text after a tab describes a value.
func Values(f *pflag.FlagSet, name string, values ...string) {
	annotate(f.Lookup(name), valuesKey, values...)
}

// ValuesOf returns the values of a flag; nil: any.
func ValuesOf(g *pflag.Flag) []string { return g.Annotations[valuesKey] }

func annotate(g *pflag.Flag, key string, values ...string) {
	if g.Annotations == nil {
		g.Annotations = make(map[string][]string)
	}
	g.Annotations[key] = values
}
