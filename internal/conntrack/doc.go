// Package conntrack moves the flows of clients off endpoints that are gone.
//
// Rules decide about new connections only, and connection tracking keeps the
// decision. A UDP client that keeps sending from one socket keeps its entry alive,
// and so stays with an endpoint long after that is gone. After a sync a [Cleaner]
// deletes such entries; the client's next packet is a new connection, for which the
// current rules decide.
//
// Whether an entry is stale depends on its two addresses on the side of the
// service: the one that the client dialled, and the one that answers. They differ
// if the connection was translated. Only connections to our frontends are deleted. For a
// Service that lists its clients, a translated entry of another client is stale, too: the
// client's next packet is dropped. Established TCP connections end only if the configuration
// of the node or the Service asks for it.
//
// A frontend that comes may have clients that have sent before. Their entries are not
// translated, had no answer, and are deleted, too: see early.
//
// # Races
//
// A Cleaner lists entries concurrently with everything else. It deletes them while
// the rules cannot change, and only if they are stale under these rules. Meanwhile
// packets may do the following:
//
//   - A packet of an old flow follows the old entry until that is deleted. The next
//     packet creates an entry under the current rules, which is not stale. An answer
//     in flight to the client is lost.
//   - An entry expires after it was listed, and the client creates another one. A
//     deletion names the ID and the reply tuple, which contains the endpoint: an
//     entry to a serving endpoint has a different one. The ID alone is not enough:
//     the kernel derives it from the original tuple and from an address in memory
//     that it often reuses (TestEntryMadeAgain).
//   - The frontend rejects or drops: the packet ends in the rules and leaves no
//     entry.
//   - An endpoint that has left the service but is still alive answers after its
//     entry was deleted. That is a new connection from the endpoint to the client,
//     which did not dial a frontend and does not matter here. It is the reason why
//     a deletion names the ID (TestEntryOfEndpoint).
//   - A packet arrives during the commit, matches no rule, and leaves an entry
//     without translation (seen on 6.18 by TestBusyClients, about once in some
//     hundred commits that give a frontend its first endpoint). The cleanup deletes
//     it if the frontend has endpoints.
//   - A packet that has passed the old rules but has not left the node when the
//     entries are listed creates a stale entry afterwards. The window is
//     microseconds, unless a queue to user space delays the packet. The entry stays
//     until the frontends or endpoints change again.
//
// Entries in other conntrack zones than the default are never deleted: programs
// with zones, such as virtual switches, track a connection once in each zone, mostly
// before it is translated.
package conntrack
