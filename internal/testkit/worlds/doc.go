// Package worlds draws random worlds: Services, Balances and flags of a node with all their settings,
// edits of them, and what else happens to a node. A seed decides everything, so a world replays by its
// seed. The package needs no kernel: tests use the same worlds with packets, or to prove rules.
package worlds
