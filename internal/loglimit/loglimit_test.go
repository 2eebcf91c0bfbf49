package loglimit

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// written has the lines of a log that several goroutines write.
type written chan string

func (w written) Write(line []byte) (int, error) {
	w <- string(line)
	return len(line), nil
}

// TestLimit: 13.28. Lines beyond the limit are counted, in one line for each ten seconds,
// and after a quiet time there is room again.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := make(written, 2*budget.ObjectLines)
		l := New(slog.New(slog.NewTextHandler(log, nil)))
		derived := l.With("kind", "Service").WithGroup("g")
		write := func(n int) {
			for i := range n {
				derived.Warn("problem", "n", i)
				l.Debug("not enabled")
			}
		}
		lines := func() (problems int, counts string) {
			synctest.Wait()
			for range len(log) {
				line := <-log
				if strings.Contains(line, "msg=problem kind=Service g.n=") {
					problems++
				} else {
					counts += line[strings.LastIndex(line, "lines="):]
				}
			}
			return problems, counts
		}
		write(budget.ObjectLines - 1)
		if n, counts := lines(); n != budget.ObjectLines-1 || counts != "" {
			t.Errorf("within the limit: %d lines, counts %q", n, counts)
		}
		write(1000)
		if n, counts := lines(); n != 1 || counts != "" {
			t.Errorf("beyond the limit: %d lines, counts %q", n, counts)
		}
		time.Sleep(summaryPause)
		if n, counts := lines(); n != 0 || counts != "lines=999\n" {
			t.Errorf("later: %d lines, counts %q", n, counts)
		}
		for range 60 {
			write(1000)
			time.Sleep(time.Second)
		}
		if n, counts := lines(); n > 5 || strings.Count(counts, "\n") < 5 || strings.Count(counts, "\n") > 6 {
			t.Errorf("in a minute of %d lines: %d lines, counts %q", 60*1000, n, counts)
		}
		time.Sleep(time.Hour)
		lines()
		write(budget.ObjectLines)
		if n, counts := lines(); n != budget.ObjectLines || counts != "" {
			t.Errorf("after a quiet hour: %d lines, counts %q", n, counts)
		}
	})
}

func ExampleLimiter() {
	l := Limiter(20, time.Second)
	fmt.Println(l.Burst(), l.Limit())
	// Output: 20 20
}
