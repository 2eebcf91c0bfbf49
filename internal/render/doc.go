// Package render turns a [model.Routing] into an [nft.Ruleset].
//
// The ruleset is flat. The chains, sets, maps and rules are the same for every
// node; only elements depend on Services, because nf_tables changes elements
// at a cost that does not grow with the number of existing ones. The one
// exception are the lanes: chains that pick slot k of n, one for each number of
// endpoints in use and counter, shared by all services (see lanes.go).
//
// Only nat base chains are used. They see the first packet of a connection, so
// established traffic meets none of our rules.
package render
