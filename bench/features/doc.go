// Command features measures what each optional feature costs a new connection, on the
// real kernel and in one run:
//
//	features [-services 1000] [-runs 5] [-rounds 15] [-only NAME,...] [-family IPv4] [-machine 6.12] [-o FILE.json]
//
// With -machine it does so in a virtual machine with the kernel of a Debian release, where each
// instruction takes a nanosecond, so that other load does not matter.
//
// Each row of the table in features.go is a laboratory of its own, with the rules that
// nftproxy writes for one Service among many others. Rounds go through all rows, each in
// another order, so that other load on the machine affects all of them; runs make the
// laboratories again, with other hash tables in the kernel.
//
// One thread is client and server of a connection: it never waits, and its processor time
// is what the packets take on their whole way. It needs root.
package main
