// Package codec encodes plans as messages of nf_tables, and decodes tables, sets, elements,
// chains and rules. It opens no socket.
//
// It is code of our own, because elements arrive by the hundred thousand, as byte slices
// without an allocation each. Expressions of rules are those of github.com/google/nftables.
package codec
