// Package behaviour holds tests of docs/behaviour.md, the reference of what
// nftproxy does.
//
// One test proves that every statement of the reference is named by a test or
// a golden case somewhere in the repository, and that tests name no statement
// that the reference lacks.
//
// The others are the cases in testdata, from objects to what becomes of
// connections, without a kernel. A file NAME.txtar is about one behaviour and
// can be read without reading Go:
//
//	a description for people
//	-- base.yaml --   objects that are part of every input below
//	-- flags --       command line flags for the inputs below
//	-- input.yaml --  further objects
//	-- want --        what becomes of connections
//	-- notices --     what is reported about the objects, if that matters
//	-- rules --       lines of the rendered rules, if they matter; "! " before
//	                  a text: it must not be there
//	-- same --        the rules are exactly those of the first input
//	-- error --       in place of want: parts of the message
//
// Sections from input.yaml on are repeated for further inputs, each loaded from
// nothing. A title may follow the name of a section after a colon.
//
// A line of want is a frontend, or "icmp" and an address, and what becomes of a
// new connection: the endpoints that take turns, "reject", "drop", or "pass"
// where nftproxy does nothing. "outside" introduces what holds for clients
// outside of the cluster, where that differs. All frontends of the ruleset must
// be there; other lines are probes.
package behaviour
