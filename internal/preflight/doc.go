// Package preflight asks the kernel for everything that the rules are made of,
// before the first of them is applied, so that what is missing has a name: the
// module or the option that brings it.
//
// It asks by a batch of nf_tables messages that has no end. The kernel carries
// out each message, answers it, loads the modules that it asks for, and then
// takes everything back, because only the end of a batch commits it; "nft
// --check" does the same. Nothing becomes visible, and the generation of the
// ruleset stays the same.
package preflight
