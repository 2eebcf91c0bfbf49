// Package live is what a running daemon reports about the present: connections by
// Service, recent changes, the latency of syncs and problems. Readers take samples,
// and compute rates from two of them.
package live
