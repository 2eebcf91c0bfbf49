// Package preflight asks the kernel for everything that the rules are made of,
// before the first of them is applied, so that what is missing has a name: the
// module or the option that brings it.
//
// It renders rules that use every feature, and has [kernel.Conn.Try] carry them
// out on trial. Nothing becomes visible, and the generation of the ruleset stays
// the same.
package preflight
