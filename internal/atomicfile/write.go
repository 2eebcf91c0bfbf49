// Package atomicfile replaces and removes files in one step.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Write replaces the content of a file, which need not exist. Readers see the old content
// or the new one, also after a crash or a loss of power.
func Write(path string, data []byte, permissions fs.FileMode) error {
	return write(path, data, func(f *os.File) error { return f.Chmod(permissions) })
}

// Replace is Write for a file that exists, and keeps its owner, group and permissions.
func Replace(path string, data []byte) error {
	about, err := os.Stat(path)
	if err != nil {
		return err
	}
	return write(path, data, func(f *os.File) error {
		var err error
		if user, group, ok := ownerOf(about); ok {
			err = f.Chown(user, group)
		}
		return errors.Join(err, f.Chmod(about.Mode().Perm()))
	})
}

// Remove removes a file, which need not exist.
func Remove(path string) error {
	// On a file system that cannot be written, removing fails before the kernel looks for the file.
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func write(path string, data []byte, own func(*os.File) error) (err error) {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer f.Close()
	locked := tryLock(f) == nil // for RemoveDrafts
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, own(f), f.Sync())
	if !locked { // Windows renames no open files
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return nil // the file is in place; only its name may not be on the disk yet
	}
	_ = d.Sync() // file systems without it write the name soon
	return d.Close()
}

var draft = regexp.MustCompile(`^\..+\.[0-9]+$`) // as os.CreateTemp names it

// RemoveDrafts removes from a directory what processes have left that were killed while they wrote a file. Those of
// processes that write now are locked, and stay.
func RemoveDrafts(directory string) error {
	all, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range all {
		if draft.MatchString(e.Name()) && e.Type().IsRegular() {
			err = errors.Join(err, removeDraft(filepath.Join(directory, e.Name())))
		}
	}
	return err
}

func removeDraft(path string) error {
	f, _, err := open(path, os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if tryLock(f) != nil {
		return nil
	}
	return Remove(path)
}

// ReadOnly adds what to do to an error because of a read-only file system; flag is the one that names the file.
func ReadOnly(err error, flag string) error {
	if !errors.Is(err, syscall.EROFS) {
		return err
	}
	return fmt.Errorf("%w: mount the directory for writing, or name another file with %s of \"nftproxy run\"", err, flag)
}

const lockPause = 20 * time.Millisecond

// Lock locks an open file or directory against others that do the same (flock), and waits for them,
// but not for longer than the patience. The lock ends when the file is closed. The error of a wait
// that was too long names the process that has the lock, as far as that is known.
func Lock(f *os.File, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(lockPause) {
		err := tryLock(f)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		case time.Now().After(deadline):
			return fmt.Errorf("lock %s: %s has had the lock for %s: wait for its end, or stop it", f.Name(), holder(f), patience)
		}
	}
}

func holder(f *os.File) string {
	const unknown = "another process"
	about, err := f.Stat()
	if err != nil {
		return unknown
	}
	device, inode, ok := numbersOf(about)
	if !ok {
		return unknown
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return unknown
	}
	defer locks.Close()
	pid, sure := holderIn(locks, device, inode)
	if pid <= 0 { // it is in a container of which this one sees nothing
		return unknown
	}
	text := fmt.Sprintf("process %d", pid)
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		text += " (" + strings.TrimSpace(string(name)) + ")"
	}
	if !sure {
		text = unknown + ", perhaps " + text + ","
	}
	return text
}

// holderIn returns the process that has a lock of an inode by flock; 0: there is none. Lines are for
// example "1: FLOCK  ADVISORY  WRITE 4711 00:1f:1234 0 EOF" (proc_locks(5)); "->" marks one that waits.
// It is sure if the device is the same. Some file systems show files another one than /proc/locks does
// (btrfs, overlay); and files of two devices often have the same inode.
func holderIn(locks io.Reader, device, inode uint64) (pid int, sure bool) {
	at := fmt.Sprintf(":%d", inode)
	here := fmt.Sprintf("%02x:%02x", device>>8&0xfff|device>>32&^0xfff, device&0xff|device>>12&0xffffff00) + at
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], at) {
			continue
		}
		n, err := strconv.Atoi(fields[4])
		switch {
		case err != nil:
		case fields[5] == here:
			return n, true
		case pid == 0:
			pid = n
		}
	}
	return pid, false
}
