package atomicfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzHolder: of any list of locks, a process is sure to hold one only if a line says so.
func FuzzHolder(f *testing.F) {
	for _, locks := range []string{
		"1: FLOCK  ADVISORY  WRITE 4711 00:1f:1234 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 4712 00:1f:1234 0 EOF\n",
		"1: POSIX  ADVISORY  READ 1 00:1f:1234 0 EOF\n2: FLOCK  ADVISORY  WRITE -1 00:20:1234 0 EOF\n3: FLOCK  MSNFS     READ 7 00:20:1234 0 EOF\n",
		"1: FLOCK ADVISORY WRITE 99999999999999999999 00:1f:1234\n", "\n \nFLOCK",
	} {
		f.Add(locks)
	}
	f.Fuzz(func(t *testing.T, locks string) {
		var pid int
		var sure bool
		hostile.CheckMemory(t, len(locks), 64, func() { pid, sure = holderIn(strings.NewReader(locks), 0x1f, 1234) })
		named := func(device string) bool {
			for line := range strings.Lines(locks) {
				if w := strings.Fields(line); len(w) > 5 && w[1] == "FLOCK" && strings.HasSuffix(w[5], device+":1234") && strings.TrimLeft(strings.TrimPrefix(w[4], "+"), "0") == fmt.Sprint(pid) {
					return true
				}
			}
			return false
		}
		if sure && pid > 0 && !named("00:1f") || !sure && pid > 0 && !named("") {
			t.Errorf("process %d, %t, which no line names: %q", pid, sure, locks)
		}
	})
}
