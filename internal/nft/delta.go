package nft

// Delta is a change of rules: parts of our tables before and after it. Both have
// the elements, sets and chains that differ, and what is needed to compare them.
type Delta struct {
	Before, After *Ruleset
	// Complete means that After is all that is wanted. Then Before is empty, and
	// what the kernel holds takes its place.
	Complete bool
}

// FromNothing returns the change to all that is wanted.
func FromNothing(r *Ruleset) Delta { return Delta{&Ruleset{}, r, true} }
