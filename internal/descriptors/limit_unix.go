//go:build unix

package descriptors

import "syscall"

// processLimit returns how many file descriptors the process may have. It may change at any time.
func processLimit() int {
	var n syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &n); err != nil {
		n.Cur = 1024
	}
	return int(min(n.Cur, 1<<30))
}
