// Package conntrack moves the flows of clients off endpoints that are gone.
//
// Rules decide about new connections alone, and connection tracking remembers
// the decision. A UDP client that goes on sending from one socket keeps its
// entry alive, and so stays with an endpoint long after that has ceased to
// exist. After a sync a [Cleaner] deletes such entries; the next packet of the
// client is a new connection, which the present rules decide about.
//
// An entry is judged by its two addresses on the side of the service: the one
// that the client dialled, and the one that answers, which differ if the
// connection was translated. Only what was dialled at a frontend of ours is
// ever touched.
//
// # Races
//
// A Cleaner lists entries beside everything else, but it deletes them while the
// rules stand still, and only those that are stale by these. What packets do
// meanwhile:
//
//   - A packet of an old flow follows the old entry until that is deleted. The
//     next one makes an entry by the present rules, which is not stale. An
//     answer that is under way to the client at that moment is lost.
//   - An entry goes away after it was listed, and the client makes it anew. A
//     deletion names the reply tuple, which holds the endpoint, besides the ID:
//     an entry to an endpoint that serves has another one. The ID alone would
//     not do, since the kernel derives it from the original tuple and from an
//     address in memory that it likes to use again (TestEntryMadeAnew).
//   - The frontend rejects or drops: the packet ends in the rules and leaves no
//     entry behind.
//   - An endpoint that is gone from the service but still alive answers after
//     its entry was deleted. That is a new connection, from the endpoint to the
//     client; it was not dialled at a frontend and does not matter here. It is
//     why a deletion names the ID (TestEntryOfEndpoint).
//   - A packet meets the commit itself, with one foot in the old rules, finds
//     nothing, and leaves an entry that is not translated (seen on 6.18 by
//     TestBusyClients, once in some hundred commits from nobody to somebody).
//     The clean-up deletes that, unless nobody serves.
//   - A packet that has passed the old rules, but not yet left the node, when
//     the entries are listed makes a stale entry afterwards. That takes
//     microseconds, unless a queue to user space holds it up; such an entry
//     stays until the frontends or endpoints change again.
//
// Entries in other conntrack zones than the default one are left alone: who
// makes zones, such as a virtual switch, tracks a connection once in each, and
// in most of them before it is translated.
package conntrack
