// Package golden pins what nftproxy programs. Every case is one file,
// NAME.txtar, about one behaviour:
//
//	a description for people
//	-- flags --        command line flags, if any
//	-- input.yaml --   the objects
//	-- notices --      what is reported about them, if anything
//	-- rules.nft --    what "nftproxy render" prints
//	-- flows --        what becomes of connections: questions and, behind "->", answers
//	-- changed.yaml -- in cases about a change: the objects afterwards
//	-- changed.flags -- the same for the flags
//	-- plan --         what "nftproxy diff" then prints
//
// "make golden" checks, "make golden UPDATE=1" rewrites the results. Every case
// is also taken through the kernel, as text by nft and as a transaction over
// netlink, and must come back equal.
package golden
