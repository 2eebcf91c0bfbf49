package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

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
