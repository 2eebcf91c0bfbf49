package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Flags and attributes of a table (linux/netfilter/nf_tables.h).
const (
	tableOwner   = 0x2 // NFT_TABLE_F_OWNER: only the socket that added the table can change it
	tablePersist = 0x4 // NFT_TABLE_F_PERSIST, since kernel 6.9: the table outlives that socket
	ownedTable   = tableOwner | tablePersist

	tableOwnerPort = 7 // NFTA_TABLE_OWNER
)

// Own makes this connection the owner of the tables that it adds from now on, and
// reports whether the kernel has tables that outlive their owner. If it has not,
// nothing changes: a table that ends with the process is worse than one that other
// programs can change.
func (c *Conn) Own() (bool, error) {
	err := c.tryTable(ownedTable)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL): // does not know the flags
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask the kernel whether tables can have an owner: %w", addRemedy(err))
	}
	c.owns = true
	return true, nil
}

func (c *Conn) tryTable(flags uint32) error {
	t := &codec.Transaction{Messages: []codec.Message{codec.NewTable(&plan.Change{Verb: plan.Add, Family: model.IPv4})}}
	refused, err := c.tryTransaction(t, flags)
	if len(refused) > 0 {
		return refused[0].Err
	}
	return err
}

// ownTables makes the sender the owner of the tables that the transaction adds.
func ownTables(t *codec.Transaction) {
	for i := range t.Messages {
		if m := &t.Messages[i]; m.Type == unix.NFT_MSG_NEWTABLE {
			a := codec.Attributes(m.Data)
			a.Uint32(unix.NFTA_TABLE_FLAGS, ownedTable)
			m.Data = a
		}
	}
}

// Claim makes this connection the owner of our tables where the kernel allows it:
// where a former owner has ended. It returns the families whose tables must be
// redeclared for that. A table of another process is an [OwnedError]. If there is
// nothing to claim, nothing is written.
func (c *Conn) Claim() (outdated []model.Family, err error) {
	t := &codec.Transaction{}
	tables, err := c.askTables()
	if err != nil {
		return nil, fmt.Errorf("get table: %w", addRemedy(err))
	}
	for _, table := range tables {
		switch {
		case table.isOwnedByOther(c):
			return nil, table.ownedError()
		case table.flags&ownedTable == tablePersist:
			t.Messages = append(t.Messages, takeOver(table.family))
		case table.flags&ownedTable != ownedTable:
			// A table gets an owner when it is added, or when it has lost one.
			outdated = append(outdated, table.family)
		}
	}
	if len(t.Messages) == 0 {
		return outdated, nil
	}
	ownTables(t)
	_, err = c.send(t, AnyGeneration)
	return outdated, err
}

// Reclaim makes this connection the owner of our tables if they have lost their owner and
// no transaction was made since the one with this number, by any program; it reports
// whether it has. They hold what they held then, and only this connection can change them.
func (c *Conn) Reclaim(generation uint32) (bool, error) {
	t := &codec.Transaction{}
	tables, err := c.askTables()
	if err != nil {
		return false, fmt.Errorf("get table: %w", addRemedy(err))
	}
	for _, table := range tables {
		if table.flags&ownedTable != tablePersist {
			return false, nil
		}
		t.Messages = append(t.Messages, takeOver(table.family))
	}
	if len(t.Messages) == 0 || generation == AnyGeneration {
		return false, nil
	}
	ownTables(t)
	_, err = c.send(t, generation)
	if OutcomeOf(err) == Later {
		return false, nil
	}
	return err == nil, err
}

func takeOver(f model.Family) codec.Message {
	return codec.Message{Type: unix.NFT_MSG_NEWTABLE, Data: codec.InTable(f), Object: "take over table " + nft.FamilyKeyword(f) + " " + nft.TableName}
}

// Identity identifies the nf_tables of a network namespace, as long as the machine runs.
type Identity struct {
	Boot      string // changes with each start of the machine
	Clock     string // the time namespace of this process: each has its own offset for [Now]
	Namespace uint64 // no two network namespaces have the same, also one after the other
}

// Identity returns the identity. Kernels before 5.14 have none.
func (c *Conn) Identity() (Identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Identity{}, err
	}
	i := Identity{Boot: strings.TrimSpace(string(boot))}
	if i.Clock, err = timeNamespace(); err != nil {
		return Identity{}, err
	}
	i.Namespace, err = c.socket.namespaceCookie()
	return i, err
}

// timeNamespace returns the time namespace of this process, empty if this kernel has none (they came
// with 5.6).
func timeNamespace() (string, error) {
	namespace, err := os.Readlink("/proc/self/ns/time")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return namespace, err
}

// Moment is the time since the start of the machine, including the time that it was suspended.
// No program can set this clock, except for the processes of a time namespace, when it is
// made: [Identity] has the namespace.
type Moment time.Duration

// generations is how long a generation stands for one content of the rules. It comes back
// after 4,294,967,295 transactions, and the kernel carries out those of a network namespace one
// after the other (commit_mutex of struct nftables_pernet): each would have to take less
// than a microsecond. One that changes a single element takes more than 50 (BenchmarkTransaction).
const generations = time.Hour

func Now() (Moment, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return Moment(t.Nano()), nil
}

// Distinguishes reports whether a generation that was read at the moment, and is the same
// later, stands for the same rules.
func (m Moment) Distinguishes(later Moment) bool {
	return m > 0 && m <= later && time.Duration(later-m) <= generations
}

// OwnedByOther returns the table of ours that belongs to another process, if there is
// one.
func (c *Conn) OwnedByOther() (*OwnedError, error) {
	tables, err := c.askTables()
	for _, t := range tables {
		if t.isOwnedByOther(c) {
			return t.ownedError(), nil
		}
	}
	return nil, err
}

type tableState struct {
	family model.Family
	flags  uint32
	owner  uint32 // port of the netlink socket
}

func (t tableState) isOwnedByOther(c *Conn) bool {
	return t.flags&tableOwner != 0 && t.owner != c.nl.PID()
}

// askTables returns the states of our tables, until there is an answer or a permanent error.
func (c *Conn) askTables() ([]tableState, error) { return retryQuestion(c.stateOfTables) }

func (c *Conn) stateOfTables() (out []tableState, err error) {
	for _, f := range model.Families {
		t, err := c.stateOfTable(f)
		switch {
		case err == nil:
			out = append(out, t)
		case !errors.Is(err, unix.ENOENT):
			return out, err
		}
	}
	return out, nil
}

// Empty implements apply.Kernel.
func (c *Conn) Empty() (bool, error) {
	tables, err := c.askTables()
	return len(tables) == 0 && err == nil, err
}

// RelayAdmits reports whether a process lets the connections of a family pass to its relay.
func (c *Conn) RelayAdmits(f model.Family) (bool, error) {
	a := codec.Begin(f)
	a.Text(unix.NFTA_TABLE_NAME, nft.RelayTable)
	_, err := retryQuestion(func() (tableState, error) { return c.stateOf(a) })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// stateOfTable returns the state of our table of a family; ENOENT if there is none.
func (c *Conn) stateOfTable(f model.Family) (tableState, error) {
	t, err := c.stateOf(codec.InTable(f))
	t.family = f
	return t, err
}

// stateOf returns the state of the table that a message names.
func (c *Conn) stateOf(table codec.Attributes) (tableState, error) {
	replies, err := c.sendRequest(unix.NFT_MSG_GETTABLE, netlink.Request, table)
	if err != nil {
		return tableState{}, err
	}
	var t tableState
	for _, m := range replies {
		a := netlinkio.ReadMessage(m.Data, &err)
		for a.Next() {
			switch a.Type {
			case unix.NFTA_TABLE_FLAGS:
				t.flags = a.Uint32()
			case tableOwnerPort:
				t.owner = a.Uint32()
			}
		}
	}
	return t, err
}

// OwnedError means that a table belongs to another process. It unwraps to EPERM.
type OwnedError struct {
	Table string // with its family
	Owner host.Process
	Port  uint32 // of the owner's netlink socket
}

func (e *OwnedError) Error() string {
	owner := "a process that is not visible here, for example in another container"
	if e.Owner.PID != 0 {
		owner = "process " + e.Owner.String()
	}
	return fmt.Sprintf("table %s belongs to %s (netlink port %d), and no other process can change it: "+
		"stop that process first, or start it with --no-table-owner", e.Table, owner, e.Port)
}

func (e *OwnedError) Unwrap() error { return unix.EPERM }

func (t tableState) ownedError() *OwnedError {
	return &OwnedError{Table: nft.FamilyKeyword(t.family) + " " + nft.TableName, Owner: host.ProcessOf(t.owner), Port: t.owner}
}

// explainRefusal explains why the kernel refused a transaction: a table may belong to
// another process.
func (c *Conn) explainRefusal(err error) error {
	if errors.Is(err, unix.EPERM) {
		tables, _ := c.stateOfTables() // without an answer, the error stays
		for _, t := range tables {
			if t.isOwnedByOther(c) {
				return t.ownedError()
			}
		}
	}
	return addRemedy(err)
}

// IsOwner reports whether our tables, as far as they exist, belong to this
// connection, so that nothing else can change them. A table that another program adds
// later cannot get an owner.
func (c *Conn) IsOwner() (bool, error) {
	if !c.owns {
		return false, nil
	}
	tables, err := c.stateOfTables()
	others := slices.ContainsFunc(tables, func(t tableState) bool { return t.flags&tableOwner == 0 || t.isOwnedByOther(c) })
	return err == nil && !others, err
}
