package memory

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

type extent struct{ from, to uintptr }

// unmapProgram returns the pages of the program that only the start, or a rare command, has needed:
// the kernel counts them as memory of the process, and keeps them longer than others of the file
// when memory is short. A page that is needed again comes back from the cache of the file.
func unmapProgram() error {
	name, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	for _, e := range unchanged(f, name) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, e.from, e.to-e.from, unix.MADV_DONTNEED); errno != 0 {
			return os.NewSyscallError("madvise", errno)
		}
	}
	return nil
}

type program struct{}

func (program) free() { _ = unmapProgram() } // without it, the process only takes more memory

// size returns how many bytes of files are mapped and resident: nearly all are of the program.
// statm is explained in proc_pid_statm(5).
func (program) size() int64 {
	var size, resident, shared int64
	text, _ := os.ReadFile("/proc/self/statm") // without it, nothing is given back
	_, _ = fmt.Sscan(string(text), &size, &resident, &shared)
	return shared * int64(os.Getpagesize())
}

// unchanged returns where a file is mapped that cannot be written there, and has no pages that differ
// from the file: the content of these would be lost. smaps is explained in proc_pid_smaps(5).
func unchanged(smaps io.Reader, name string) (out []extent) {
	var at extent
	var reads bool
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		var e extent
		var access string
		line := lines.Text()
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &e.from, &e.to, &access); n == 3 {
			at, reads = e, strings.HasPrefix(access, "r-") && strings.HasSuffix(line, " "+name)
		} else if fields := strings.Fields(line); reads && len(fields) > 1 && fields[0] == "Anonymous:" && fields[1] == "0" {
			out = append(out, at)
		}
	}
	return out
}
