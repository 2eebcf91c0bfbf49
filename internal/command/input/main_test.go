package input

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
)

var program = commandline.Of(BalanceCommand, ImportCommand, SchemaCommand, ValidateCommand)

// fence is a block of code on a page.
var fence = regexp.MustCompile("(?ms)^```.*?^```")

// sayPeak in the environment makes the test binary the program, which prints its peak of memory at the end.
const sayPeak = "NFTPROXY_TEST_SAY_PEAK"

func TestMain(m *testing.M) {
	if os.Getenv(sayPeak) == "" {
		os.Exit(m.Run())
	}
	code := cli.Execute(program(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	// The system's own figure for a child would begin with what its parent has used.
	status, err := os.ReadFile("/proc/self/status")
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if err != nil || peak == nil {
		os.Exit(1)
	}
	fmt.Printf("peak %s\n", peak[1])
	os.Exit(code)
}
