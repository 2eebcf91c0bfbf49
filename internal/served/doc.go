// Package served says what a node does with new connections to a frontend: one value,
// which [Of] makes from a route, and [Read] from a table of rules. All reports on frontends
// print it, so that they agree.
//
// Rules know less than objects. A fact that they leave open is in [Frontend.Unknown], and
// its field is zero. All else is equal: Read(Render(route)) is Of(route) without unknown
// facts, which tests check for each golden file and for random worlds.
package served
