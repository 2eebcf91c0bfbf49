// Package trace follows one connection through all tables of nf_tables, also those of
// other programs, with the kernel's own trace of packets.
//
// [Open] adds a table that marks the first packets of connections to a frontend and their
// first answers, and belongs to a socket of this process: the kernel deletes it when the
// process ends, however that happens. [Session.Follow] collects the messages about one of
// these connections, and [Explainer] says in words what happened to it. docs/inspect.md
// explains the output.
package trace
