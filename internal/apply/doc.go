// Package apply keeps the kernel's tables at a wanted ruleset. It commits what
// package plan finds to differ, retries what can succeed later, and remembers
// which endpoint has which slot.
//
// Only our own tables are read or written.
package apply
