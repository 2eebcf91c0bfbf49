package results

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ProcessorTime returns what the threads of a process have used, which must live as long as it does.
func ProcessorTime(pid int) (time.Duration, error) {
	used, _, err := ProcessorTimes(pid)
	return used, err
}

// ProcessorTimes returns also how long these threads have waited for a processor.
func ProcessorTimes(pid int) (used, waited time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(threads) == 0 {
		err = fmt.Errorf("process %d has ended", pid)
	}
	for _, t := range threads {
		var running, runnable time.Duration
		text, readErr := os.ReadFile(t)
		_, scanErr := fmt.Sscan(string(text), &running, &runnable)
		err = errors.Join(err, readErr, scanErr)
		used += running
		waited += runnable
	}
	return used, waited, err
}
