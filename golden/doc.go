// Package golden pins what nftproxy programs. Every case is one file,
// NAME.txtar, about one behaviour:
//
//	a description
//	-- flags --       command line flags, if any
//	-- base.yaml --   objects that all inputs below have in common, if any
//	-- others --      addresses that another program has put into our sets before
//	-- input.yaml --  further objects
//	-- notices --     warnings about the input, then what cannot be served as
//	                  the objects ask, if there is anything
//	-- rules.nft --   what "nftproxy render" prints, abridged
//	-- flows --       connections: questions and, behind "->", answers
//	-- input.yaml --  in cases about a change: the objects afterwards
//	-- services --    what changes by Service, as "nftproxy diff" prints it
//	-- plan --        the elements of the rules that change then
//
// New flags, a new base or a new input begin the next phase of a case. Only the
// first phase shows rules, every other one a plan, and flows where they matter.
// A title may follow the name of an input after a colon.
//
// # Rules
//
// Most of a ruleset is the same in all cases, so only skeleton.txtar shows one whole.
// The others show all elements, and the sets and chains that the skeleton lacks or has
// in another form: "+3" stands before the third line of a set or chain if the skeleton
// lacks it, "=3" if the skeleton has another line in its place, and "-3" before the third
// line of the skeleton if it is missing. What only some rulesets need is in
// skeleton-optional.txtar, skeleton-ranges.txtar and skeleton-refusals.txtar: the others
// name it, "as in the skeleton". "chain output of skeleton-ranges" is one of every ruleset, in the form of that
// case. A line with "to" has the endpoints of several slots; for a table of Maglev, a sum
// of its elements, and the number of slots of each endpoint. "each of set limited" stands
// for the elements of that set, with the following text behind each. Nothing is lost:
// TestAbridge proves that a change of any line shows.
//
// "make golden" checks, "make golden UPDATE=1" rewrites the results. The whole
// ruleset of every case is also taken through the kernel, as text by nft and as a
// transaction over netlink, and must come back equal.
//
// The names of cases about one feature begin with the name of its folder in internal/feature.
//
// # Behaviour
//
// The cases in the directory behaviour have many inputs and show little of the
// rules. They have other results:
//
//	-- want --     where connections go
//	-- rules --    lines of the rendered rules, if they matter; "! " before
//	               a text: it must not be there
//	-- same --     the rules are exactly those of the first input
//	-- error --    in place of want: parts of the message
//
// A line of want is a frontend, or "icmp" and an address, and where a new
// connection goes: the endpoints that take turns, "reject", "drop", or "pass"
// where nftproxy does nothing. "outside" introduces what holds for clients
// outside of the cluster, where that differs. All frontends of the ruleset must
// be there; other lines are probes.
package golden
