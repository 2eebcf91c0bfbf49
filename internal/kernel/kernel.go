package kernel

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"

	"golang.org/x/sys/unix"
)

// AnyGeneration lets a transaction take place whatever the generation is.
const AnyGeneration = 0

// Size is the size of a transaction on the wire.
type Size struct {
	Messages int
	Bytes    int // without the message headers
}

// Conn is a lasting netlink socket to nf_tables in the network namespace of
// the thread that opened it. It is not safe for concurrent use.
type Conn struct {
	nl        *netlink.Conn
	sequence  uint32   // of the next message in a batch
	owns      bool     // the tables that it adds
	namespace *os.File // of the network
	// lacksDestroy means that the kernel is older than 6.3.
	lacksDestroy bool
	dirty        bool // something of an earlier answer may be left on the socket
	// watcher of what others do; nil: none.
	watcher *Watcher
}

// receiveBuffer is the space for one datagram, in bytes. The kernel fills the
// datagrams of a dump up to 32 KiB if the receiver has room for that, and goes
// through a set from its start again for each of them: with datagrams of a
// page, dumping 44,000 elements takes several times as long. An error comes
// with the message that it is about, which is at most 64 KiB.
const receiveBuffer = 128 << 10

// Open connects to nf_tables. Reading needs CAP_NET_ADMIN, like writing.
func Open() (*Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	namespace, err := os.Open(threadNamespace)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return open(namespace, 0)
}

// threadNamespace is the network namespace of the calling thread.
const threadNamespace = "/proc/thread-self/ns/net"

// open connects in the namespace of the calling thread, or in another one, and
// takes the file of that namespace over.
func open(namespace *os.File, other int) (*Conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: receiveBuffer, NetNS: other})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink socket: %w", err), namespace.Close())
	}
	// Let the kernel explain errors in words. It sends the refused message back
	// as well; the option against that (CapAcknowledge) would make the netlink
	// library lose the explanation.
	if err := nl.SetOption(netlink.ExtendedAcknowledge, true); err != nil {
		return nil, errors.Join(fmt.Errorf("set netlink option: %w", err), nl.Close(), namespace.Close())
	}
	return &Conn{nl: nl, namespace: namespace}, nil
}

// withSibling asks a question over a connection of its own to the same network
// namespace, until there is an answer or an error that stays. Another namespace
// than that of the calling thread, as tests have it, needs CAP_SYS_ADMIN.
func withSibling[T any](c *Conn, ask func(*Conn) (T, error)) (T, error) {
	return persist(func() (v T, err error) {
		sibling, err := c.sibling()
		if err != nil {
			return v, err
		}
		defer func() {
			if closeErr := sibling.Close(); !errors.Is(closeErr, os.ErrClosed) {
				err = errors.Join(err, closeErr)
			}
		}()
		return ask(sibling)
	})
}

func (c *Conn) sibling() (*Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open(threadNamespace)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	here, hereErr := own.Stat()
	there, thereErr := c.namespace.Stat()
	if err := errors.Join(hereErr, thereErr); err != nil {
		return nil, errors.Join(fmt.Errorf("compare network namespaces: %w", err), own.Close())
	}
	if os.SameFile(here, there) {
		return open(own, 0)
	}
	return open(own, int(c.namespace.Fd()))
}

// Close closes the socket. The rules stay.
func (c *Conn) Close() error { return errors.Join(c.nl.Close(), c.namespace.Close()) }

var (
	// errChanged means that others changed the ruleset while it was read.
	ErrChanged = errors.New("the ruleset keeps changing")
	// errInconsistent means that a dump left out elements or gave them twice.
	// The kernel resizes the hash table of a set some time after the elements
	// were added, and the generation does not tell
	// (seen on 6.18, TestReadAfterLoad).
	errInconsistent = errors.New("elements are missing or come twice")
)

// Read implements apply.Kernel. The dumps are not one moment: they are taken again
// until the generation is the same before and after. Others may write so often
// to their own tables that it never is: then two readings that are equal will
// do. The owner of the tables, which nobody else can change, needs neither, nor a
// generation to write.
func (c *Conn) Read() (*nft.Ruleset, uint32, error) {
	owner, err := persist(c.isOwner)
	if err != nil {
		return nil, 0, fmt.Errorf("get table: %w", explain(err))
	}
	var last *nft.Ruleset
	rs, generation, err := consistent(c, "ruleset", c.dump, func(now *nft.Ruleset) bool {
		same := owner || last != nil && equal(last, now)
		last = now
		return same
	})
	if owner {
		generation = AnyGeneration
	}
	return rs, generation, err
}

// equal reports whether two rulesets are equal.
func equal(a, b *nft.Ruleset) bool {
	return slices.EqualFunc(a.Tables, b.Tables, func(a, b *nft.Table) bool {
		return a.Family == b.Family && reflect.DeepEqual(a.Chains, b.Chains) &&
			slices.EqualFunc(a.Sets, b.Sets, func(a, b *nft.Set) bool {
				return a.Same(b) && slices.Equal(a.Elements, b.Elements)
			})
	})
}

// consistent reads until nobody changed the ruleset meanwhile, or until that
// does no harm, and returns the generation as well.
func consistent[T any](c *Conn, what string, read func() (T, error), harmless func(T) bool) (T, uint32, error) {
	var generation uint32
	v, err := persist(func() (v T, err error) {
		before, err := c.Generation()
		if err != nil {
			return v, fmt.Errorf("read generation: %w", err)
		}
		if v, err = read(); err != nil {
			return v, fmt.Errorf("read %s: %w", what, err)
		}
		if generation, err = c.Generation(); err != nil {
			return v, fmt.Errorf("read generation: %w", err)
		}
		if generation != before && !harmless(v) {
			return v, fmt.Errorf("read %s: %w", what, ErrChanged)
		}
		return v, nil
	})
	if err != nil {
		var none T
		return none, 0, explain(err)
	}
	return v, generation, nil
}

func (c *Conn) Generation() (uint32, error) {
	replies, err := c.request(unix.NFT_MSG_GETGEN, netlink.Request, anyFamily)
	if err != nil {
		return 0, err
	}
	for _, m := range replies {
		ad, err := attributesOf(m)
		if err != nil {
			return 0, err
		}
		for ad.Next() {
			if ad.Type() == unix.NFTA_GEN_ID {
				return ad.Uint32(), nil
			}
		}
	}
	return 0, errors.New("no generation in the reply")
}

func (c *Conn) dump() (*nft.Ruleset, error) {
	rs := &nft.Ruleset{}
	for _, f := range model.Families {
		t, err := c.dumpTable(f)
		if err != nil {
			return nil, err
		}
		if t != nil {
			rs.Tables = append(rs.Tables, t)
		}
	}
	return rs, nil
}

// dumpTable returns our table of a family, or nil.
func (c *Conn) dumpTable(f model.Family) (*nft.Table, error) {
	state, err := c.table(f)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get table: %w", err)
	}
	t := &nft.Table{Family: f, Foreign: state.flags&unix.NFT_TABLE_F_DORMANT != 0}
	for _, dump := range []func(*nft.Table) error{c.lookForObjects, c.dumpSets, c.dumpChains, c.dumpRules} {
		switch err := dump(t); {
		case errors.Is(err, unix.ENOENT): // it was there a moment ago
			return nil, ErrChanged
		case err != nil:
			return nil, err
		}
	}
	return t, nil
}

// lookForObjects tells whether others have put objects into the table that ours
// have not.
func (c *Conn) lookForObjects(t *nft.Table) error {
	for _, typ := range []uint16{unix.NFT_MSG_GETOBJ, unix.NFT_MSG_GETFLOWTABLE} {
		a := begin(t.Family)
		a.string(objectTable, nft.TableName)
		replies, err := c.requestAll(typ, a)
		if err != nil {
			return fmt.Errorf("dump objects: %w", err)
		}
		for _, m := range replies {
			ad, err := attributesOf(m)
			if err != nil {
				return fmt.Errorf("decode object: %w", err)
			}
			for ad.Next() {
				t.Foreign = t.Foreign || ad.Type() == objectTable && ad.String() == nft.TableName
			}
			if err := ad.Err(); err != nil {
				return fmt.Errorf("decode object: %w", err)
			}
		}
	}
	return nil
}

// objectTable is NFTA_OBJ_TABLE and NFTA_FLOWTABLE_TABLE.
const objectTable = 1

func (c *Conn) dumpSets(t *nft.Table) error {
	a := begin(t.Family)
	a.string(unix.NFTA_SET_TABLE, nft.TableName)
	replies, err := c.requestAll(unix.NFT_MSG_GETSET, a)
	if err != nil {
		return fmt.Errorf("dump sets: %w", err)
	}
	for _, m := range replies {
		s, count, err := decodeSet(m, t.Family)
		if err != nil {
			return fmt.Errorf("decode set: %w", err)
		}
		if s == nil {
			continue
		}
		t.Sets = append(t.Sets, s)
		if s.Key == nil || s.Dynamic {
			continue // not ours, and so not understood, or state
		}
		if err := c.dumpElements(s, count, t.Family); err != nil {
			return fmt.Errorf("dump elements of %s: %w", s.Name, err)
		}
	}
	return nil
}

// Set returns the declaration of one set and the number of its elements, as far
// as the kernel tells; ENOENT if there is none.
func (c *Conn) Set(name string, f model.Family) (*nft.Set, int, error) {
	a := begin(f)
	a.string(unix.NFTA_SET_TABLE, nft.TableName)
	a.string(unix.NFTA_SET_NAME, name)
	replies, err := c.request(unix.NFT_MSG_GETSET, netlink.Request, a)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range replies {
		if s, count, err := decodeSet(m, f); err == nil && s != nil && s.Key != nil {
			return s, count, nil
		}
	}
	return nil, 0, unix.ENOENT
}

// eachElement calls each for the elements of a set as the kernel gives them,
// while they come: a dump can have tens of megabytes. The element is valid
// during the call only. [errEnough] ends the dump and closes the connection: there
// is no other way to keep the kernel from giving the rest.
func (c *Conn) eachElement(s *nft.Set, f model.Family, each func(*element) error) error {
	a := begin(f)
	a.string(unix.NFTA_SET_ELEM_LIST_TABLE, nft.TableName)
	a.string(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	if err := c.prepare(); err != nil {
		return err
	}
	request, err := c.nl.Send(question(unix.NFT_MSG_GETSETELEM, netlink.Request|netlink.Dump, a))
	if err != nil {
		return err
	}
	d := newElementDecoder(s, f)
	for m, err := range c.nl.ReceiveIter() {
		if err == nil {
			err = netlink.Validate(request, []netlink.Message{m})
		}
		if err == nil {
			err = d.message(m, each)
		}
		if errors.Is(err, errEnough) {
			return errors.Join(err, c.nl.Close()) // first: the iterator takes the rest in
		}
		if err != nil {
			c.note(err)
			return err
		}
		netlinkio.Renew(c.nl)
	}
	return nil
}

// dumpElements fills a set that has count elements, as far as the kernel tells.
func (c *Conn) dumpElements(s *nft.Set, count int, f model.Family) error {
	if s.Interval {
		return c.dumpIntervals(s, f)
	}
	catchAll := false
	s.Elements = make([]nft.Element, 0, room(count))
	if err := c.eachElement(s, f, func(e *element) error {
		catchAll = catchAll || e.isCatchAll()
		s.Elements = append(s.Elements, e.Element)
		return nil
	}); err != nil {
		return err
	}
	if catchAll {
		s.Key, s.Elements = nil, nil // somebody else's
		return nil
	}
	if count != unknownCount && count != len(s.Elements) {
		return errInconsistent
	}
	s.Sort()
	for i := 1; i < len(s.Elements); i++ {
		if s.Elements[i].Key == s.Elements[i-1].Key {
			return errInconsistent
		}
	}
	return nil
}

// dumpIntervals fills an interval set. It is a tree, which is never resized, so
// that the elements need not be counted.
func (c *Conn) dumpIntervals(s *nft.Set, f model.Family) error {
	var all []element
	if err := c.eachElement(s, f, func(e *element) error { all = append(all, *e); return nil }); err != nil {
		return err
	}
	understood := !slices.ContainsFunc(all, func(e element) bool { return e.isCatchAll() })
	switch {
	case !understood:
	case s.Concat():
		s.Elements, understood = concatIntervals(all)
		s.Sort()
	default:
		s.Elements = joinIntervals(all)
	}
	if !understood {
		s.Key, s.Elements = nil, nil // somebody else's
	}
	return nil
}

func (c *Conn) dumpChains(t *nft.Table) error {
	a := begin(t.Family)
	a.string(unix.NFTA_CHAIN_TABLE, nft.TableName)
	replies, err := c.requestAll(unix.NFT_MSG_GETCHAIN, a)
	if err != nil {
		return fmt.Errorf("dump chains: %w", err)
	}
	for _, m := range replies {
		chain, table, err := decodeChain(m)
		if err != nil {
			return fmt.Errorf("decode chain: %w", err)
		}
		if table == nft.TableName { // not every kernel filters
			t.Chains = append(t.Chains, chain)
		}
	}
	return nil
}

func (c *Conn) dumpRules(t *nft.Table) error {
	a := begin(t.Family)
	a.string(unix.NFTA_RULE_TABLE, nft.TableName)
	replies, err := c.requestAll(unix.NFT_MSG_GETRULE, a)
	if err != nil {
		return fmt.Errorf("dump rules: %w", err)
	}
	for _, m := range replies {
		rule, table, name, err := decodeRule(m, t.Family)
		if err != nil {
			return fmt.Errorf("decode rule: %w", err)
		}
		chain := t.Chain(name)
		if table != nft.TableName || chain == nil {
			continue
		}
		chain.Rules = append(chain.Rules, rule)
	}
	return nil
}

// explain adds to an error what a person can do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: nf_tables needs the capability CAP_NET_ADMIN: run as root", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: this kernel lacks nf_tables or a part of it: load the modules nf_tables, nft_chain_nat and nft_numgen", err)
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("%w: the socket has no buffer of that size, and this process may not give it one: "+
			"raise net.core.wmem_max, or run with CAP_NET_ADMIN outside of user namespaces", err)
	}
	return err
}
