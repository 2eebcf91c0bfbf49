// Package plan compares two states of our tables and orders the changes that
// lead from one to the other. It does not touch the kernel.
//
//	current ─┐
//	         ├─► Settle ─► Diff ──► Plan ──► Phases ──► one transaction each
//	desired ─┘
//
// Settle keeps endpoints in the slots that they have, Diff lists additions,
// changes and deletions, and Phases splits them: the preparation, the switch,
// and the removal afterwards. A [Plan] can be printed; a dry run stops there.
package plan
