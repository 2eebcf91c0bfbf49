// Package counters reads what our tables count: new connections to frontends and to their
// endpoints, and what limits have dropped.
package counters
