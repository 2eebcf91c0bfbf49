package descriptors

import (
	"cmp"
	"syscall"
)

// Use calls f with the descriptor of a connection, listener or file, which stays open until f returns, and returns its
// results.
func Use[T any](of syscall.Conn, f func(fd int) (T, error)) (out T, err error) {
	raw, failed := of.SyscallConn()
	if failed == nil {
		failed = raw.Control(func(fd uintptr) { out, err = f(int(fd)) })
	}
	return out, cmp.Or(failed, err)
}
