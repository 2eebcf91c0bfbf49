// Package apply brings the kernel's tables to a wanted ruleset: it reads them
// back as the same typed [render.Ruleset], compares, and commits the
// difference as one netlink transaction.
//
//	Read ──► current ─┐
//	                  ├─► Settle ─► Diff ──► Plan ──► Encode ──► Transaction ──► Commit
//	Render ► desired ─┘
//
// A [Plan] can be printed; a dry run stops there. Only our own tables are ever
// read or written.
package apply
