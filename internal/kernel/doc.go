// Package kernel reads and writes our two tables over netlink: the socket, transactions,
// the ownership of tables, bindings of clients, and the watcher for changes by other
// programs.
//
// Transactions are sent by code of our own: they can be tried without committing them, and
// an error names the element that the kernel refused. Package codec has the messages, and
// package counters reads the counters of the tables.
package kernel
