// Package describe says how a node serves one Service: each endpoint with its share of
// the connections, or why it has none. [FromView] does it for objects, [FromRules] for
// the rules in the kernel, which know less.
package describe
