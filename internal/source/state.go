package source

import "time"

// State reports whether a source can be used.
type State struct {
	// Err is why the source, or a part of it, cannot be used now; nil: it can. What
	// was read before stays in use.
	Err error
	// Since is when the source became unusable, or usable again.
	Since time.Time
	// Warnings are about objects that are used, but not as their author may
	// expect; the first ones, if there are many.
	Warnings []string
	// Warned is how many warnings there are.
	Warned int
	// LastSuccess is when the source was read last; zero: never. An API server
	// counts as read at each list, watch and event.
	LastSuccess time.Time
	// Failures is how many attempts to read the source have failed.
	Failures uint64
}
