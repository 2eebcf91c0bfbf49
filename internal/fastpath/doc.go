// Package fastpath moves established connections to Services to a flow table of the kernel,
// which takes their packets from one network device to another, past the rules of all programs.
//
// The flow table is in a table of its own, with its own transactions: network devices come and
// go at any time, and a name that is gone by the time of the commit must not fail a change of
// the rules for Services. The table belongs to the socket of this process, so it ends with the
// process, and its connections return to the rules.
//
// Rules send a connection there that has passed all filters in the hook forward, whose
// destination was translated, and whose frontend is in a set. For TCP it must have finished its
// handshake, for UDP it must have had answers for two seconds: that is what "assured" means to
// connection tracking. A number of packets would need its accounting (nf_conntrack_acct), which
// the kernel turns on for all connections of the machine.
package fastpath
