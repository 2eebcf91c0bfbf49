package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/kubectl-cli.md")

// TestReference: docs/kubectl-cli.md has what --help prints. "make docs" writes it.
func TestReference(t *testing.T) {
	const page = "../../docs/kubectl-cli.md"
	t.Setenv("HOME", "/home/operator")
	var b bytes.Buffer
	fmt.Fprint(&b, "# Command line of kubectl nftproxy\n\n"+
		"What `kubectl nftproxy COMMAND --help` prints, on one page. `make docs` writes it. [All nodes at once](kubectl.md) shows what the\n"+
		"commands are for.\n\n")
	root := rootCommand()
	commands := root.Commands()
	for _, c := range commands {
		fmt.Fprintf(&b, "- [`%s`](#%s): %s\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	}
	fmt.Fprint(&b, "- [Flags of all commands](#flags-of-all-commands)\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n\nUsage:\n  %s\n\nExamples:\n%s\n", c.CommandPath(), c.Long, c.UseLine(), c.Example)
		if flags := c.LocalFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(&b, "\nFlags:\n%s", flags)
		}
		fmt.Fprint(&b, "```\n")
	}
	fmt.Fprintf(&b, "\n## Flags of all commands\n\n```\n%s```\n", root.PersistentFlags().FlagUsages())
	if *update {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(page); err != nil || !bytes.Equal(is, b.Bytes()) {
		t.Errorf("%s does not match the commands (%v): run \"make docs\"", page, err)
	}
}
