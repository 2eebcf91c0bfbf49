package api

import "time"

// Comparison is what the kernel holds beside the rules that a daemon wants, by its objects. The
// names of the JSON fields are stable.
type Comparison struct {
	APIVersion Version `json:"apiVersion"`
	Version    string  `json:"version"` // of nftproxy
	// Compared is when the kernel was read. A daemon reads it for this at most once in
	// [CompareEvery].
	Compared time.Time `json:"compared,omitzero"`
	// Unsettled is why the kernel was not compared: changes are being applied. Empty: it was.
	Unsettled string `json:"unsettled,omitempty"`
	// Differences are changes that would make the kernel hold what is wanted, the first ones
	// of Count.
	Differences []Difference `json:"differences"`
	Count       int          `json:"count"`
	// Digests identify the wanted rules by Service, as namespace/name; "" are the rules that
	// Services share. Only the same version of nftproxy makes the same ones.
	Digests map[string]string `json:"digests,omitempty"`
	// Elements of the requested Service, as nft prints them.
	Elements []string `json:"elements,omitempty"`
}

// CompareEvery is the least time between two readings of the kernel for a [Comparison].
const CompareEvery = 5 * time.Second

// Difference is an element, or another object of the rules, that differs.
type Difference struct {
	Service string `json:"service,omitempty"` // namespace/name; empty: it is of no Service alone
	Port    string `json:"port,omitempty"`    // of the Service
	// Change would repair it, for example "delete element { ... } of map ip nftproxy services".
	Change string `json:"change"`
}
