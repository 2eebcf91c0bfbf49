//go:build unix

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

// Flags with which files are opened: without following a link, and without waiting for another process.
const (
	noFollow = syscall.O_NOFOLLOW
	noWait   = syscall.O_NONBLOCK
)

// tryLock locks a file, or returns EWOULDBLOCK.
func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

func ownerOf(about fs.FileInfo) (user, group int, ok bool) {
	s, ok := about.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(s.Uid), int(s.Gid), true
}

func numbersOf(about fs.FileInfo) (device, inode uint64, ok bool) {
	s, ok := about.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(s.Dev), uint64(s.Ino), true
}
