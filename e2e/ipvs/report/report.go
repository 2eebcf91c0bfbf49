// Package report writes what a move from kube-proxy's mode ipvs to nftproxy and back cost
// clients into docs/ipvs.md.
package report

// Results are those of a run.
type Results struct {
	Kernel string `json:"kernel"`
	Moves  []Move `json:"moves"`
}

// Move is one from a scheduler of IPVS to nftproxy and back.
type Move struct {
	Scheduler string  `json:"scheduler"`
	Phases    []Phase `json:"phases"`
}

// Phase is a state of the node, or a step to the next one.
type Phase struct {
	Name   string  `json:"name"`
	Counts []Count `json:"counts"`
}

// Count is the requests of a kind in a phase.
type Count struct {
	Kind     string `json:"kind"`
	Requests int    `json:"requests"`
	Failed   int    `json:"failed"`
	// Flows is how many connections or sockets were kept open at the begin of the phase,
	// Broken how many of them failed, and Moved how many got another endpoint.
	Flows  int `json:"flows,omitempty"`
	Broken int `json:"broken,omitempty"`
	Moved  int `json:"moved,omitempty"`
	// Error is the first one.
	Error string `json:"error,omitempty"`
}
