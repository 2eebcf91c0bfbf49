// Package preflight asks the kernel for all features of the rules before the first rule
// is applied, and names the module or option that provides a missing one.
//
// It renders rules that use every feature, and tries them with [kernel.Conn.Try].
// Nothing becomes visible, and the generation of the ruleset does not change.
package preflight
