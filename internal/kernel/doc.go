// Package kernel reads and writes our two tables over netlink: the codec between
// package nft's types and nf_tables' messages, the socket, transactions, the
// ownership of tables, and the watcher for changes by other programs.
//
// Messages are encoded and decoded by code of our own: elements arrive by the
// hundred thousand, as byte slices without an allocation each; transactions can
// be tried without committing them; and an error names the element that the
// kernel refused. Expressions of rules are those of github.com/google/nftables.
package kernel
