//go:build !unix

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

// Windows has no such flags.
const noFollow, noWait = 0, 0

// tryLock refuses: files are locked by the process on a node and by commands beside it, which run on Linux.
func tryLock(*os.File) error { return errors.ErrUnsupported }

// ownerOf returns false: permissions have no owner as a number.
func ownerOf(fs.FileInfo) (user, group int, ok bool) { return 0, 0, false }

// numbersOf returns false: there are no inodes.
func numbersOf(fs.FileInfo) (device, inode uint64, ok bool) { return 0, 0, false }
