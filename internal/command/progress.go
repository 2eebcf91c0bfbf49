package command

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
)

// ShowPhase shows the present step of the command on a terminal, if it takes long.
func (o *Options) ShowPhase(c *cobra.Command, format string, args ...any) {
	if !o.Quiet {
		text := fmt.Sprintf(format, args...)
		cli.MeterOf(c).Start(func() string { return text })
	}
}

// DescribeInputs names files, with the size of all.
func DescribeInputs(paths []string) string {
	size := int64(0)
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	text := strings.Join(paths, " ")
	if size > 0 {
		text += fmt.Sprintf(" (%.1f MB)", float64(size)/1e6)
	}
	return text
}
