package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/spf13/cobra"
)

// phase shows the present step of the command on a terminal, if it takes long.
func (o *options) phase(c *cobra.Command, format string, args ...any) {
	if !o.quiet {
		text := fmt.Sprintf(format, args...)
		cli.MeterOf(c).Start(func() string { return text })
	}
}

// inputs names files, with the size of all.
func inputs(paths []string) string {
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
