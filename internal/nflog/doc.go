// Package nflog reads the packets that rules log to a group of nflog.
//
// The kernel copies the first bytes of a packet into a message and collects messages for up
// to [flushTime]. It never waits for the reader: what does not fit into the buffer of the
// socket is dropped, counted here by the gaps in the sequence numbers. Without a reader of the
// group, rules that log to it cost a look-up.
//
// Facts about the kernel are from linux/netfilter/nfnetlink_log.h, and tested against it.
package nflog
