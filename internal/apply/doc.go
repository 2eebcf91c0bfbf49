// Package apply keeps the kernel's tables at a wanted ruleset. It commits the
// differences that package plan finds, retries what can succeed later, and remembers
// the slots of endpoints. It reads and writes only our own tables.
package apply
