package fastpath

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nftconn"
)

// markerName is the name of an empty table. It says that the kernel has passed the test since
// it started, for a process that may not make network namespaces, as in a container.
const markerName = "nftproxy-fast-path-tested"

// Test runs [SelfTest] and leaves the result in the kernel, for [Tested] of another process.
func Test(ctx context.Context) error {
	tested := SelfTest(ctx)
	conn, err := nftconn.Open()
	if err != nil {
		return errors.Join(tested, err)
	}
	marker := conn.AddTable(&nftables.Table{Name: markerName, Family: nftables.TableFamilyINet})
	if tested != nil {
		conn.DelTable(marker)
	}
	if err := conn.Flush(); err != nil {
		return errors.Join(tested, fmt.Errorf("note the result of the test: %w", err))
	}
	return tested
}

// Tested returns nil if the kernel passes [SelfTest], now or, if this process may not make
// network namespaces, before in [Test].
func Tested(ctx context.Context) error {
	err := SelfTest(ctx)
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	switch marked, listErr := useTable(markerName, func(*nftables.Conn) error { return nil }); {
	case listErr != nil:
		return errors.Join(err, listErr)
	case marked:
		return nil
	}
	return fmt.Errorf("%w: it needs the capability CAP_SYS_ADMIN, or \"nftproxy run --init-only\" with it before", err)
}

// useTable calls use if the kernel has a table, and reports whether it has.
func useTable(name string, use func(*nftables.Conn) error) (there bool, err error) {
	conn, err := nftconn.Open()
	if err != nil {
		return false, err
	}
	all, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("list tables: %w", err)
	}
	if !slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == name }) {
		return false, nil
	}
	return true, use(conn)
}

// Takes reports whether established connections to a frontend take the fast path of this
// machine now.
func Takes(f model.Frontend) (takes bool, err error) {
	s := &nftables.Set{Table: &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}, Name: setName(model.FamilyOf(f.Address))}
	_, err = useTable(TableName, func(conn *nftables.Conn) error {
		_, err := conn.FindSetElements(s, []nftables.SetElement{{Key: key(f)}})
		if takes = err == nil; takes || errors.Is(err, unix.ENOENT) {
			return nil
		}
		return fmt.Errorf("look for %s in table %s: %w", f, TableName, err)
	})
	return takes, err
}

// RemoveMarker removes what [Test] has left.
func RemoveMarker() (removed bool, err error) { return remove(markerName) }

// RemoveTable removes a table without an owner, which a process that was killed has left.
func RemoveTable() (removed bool, err error) { return remove(TableName) }

func remove(name string) (removed bool, err error) {
	return useTable(name, func(conn *nftables.Conn) error {
		conn.DelTable(&nftables.Table{Name: name, Family: nftables.TableFamilyINet})
		return conn.Flush()
	})
}
