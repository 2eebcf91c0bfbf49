package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
)

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```")
	// inBlock matches command lines in blocks of code, after a prompt or another command.
	inBlock = regexp.MustCompile(`(?m)^(?:[$] )?(?:sudo )?(?:kubectl .* -- )?(?:/usr/local/bin/)?nftproxy ([a-z-]+(?: .*)?)$|[|] nftproxy (.*)$`)
	// inText matches command lines in prose and in the descriptions of commands.
	inText = regexp.MustCompile("[`\"](?:sudo )?nftproxy ([a-z-]+(?: [^`\"]+)?)[`\"]")
	// word matches a word of a shell.
	word        = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	placeholder = regexp.MustCompile(`^[A-Z]+$`)
	// endOfCommand begins another command, a redirection or a comment.
	endOfCommand = regexp.MustCompile(`^([|&;#<>].*|2?>.*|\.\.\.|…|\\)$`)
)

// TestDocumentedCommands proves that the command lines in the documentation and in the
// help have commands and flags that exist.
func TestDocumentedCommands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	lines, root := 0, commandRoot()
	check := func(where, text string, commands *regexp.Regexp) {
		for _, m := range commands.FindAllStringSubmatch(text, -1) {
			lines++
			if err := parses(root, strings.Join(m[1:], "")); err != nil {
				t.Errorf("%s: %s: %v", where, m[0], err)
			}
		}
	}
	for _, path := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fence.FindAllString(string(text), -1) {
			check(path, block, inBlock)
		}
		check(path, fence.ReplaceAllString(string(text), ""), inText)
	}
	for _, c := range commandTree() {
		check("help of "+c.CommandPath(), outdent(c.Example), inBlock)
		check("help of "+c.CommandPath(), c.Long, inText)
	}
	if lines < 100 {
		t.Errorf("only %d command lines were found", lines)
	}
}

// commandRoot returns all commands, as the program has them.
func commandRoot() *cobra.Command {
	root := rootCommand()
	root.InitDefaultCompletionCmd()
	return root
}

// parses returns an error if a command line has an unknown command or flag.
func parses(root *cobra.Command, line string) error {
	var words []string
	for _, w := range word.FindAllString(line, -1) {
		if endOfCommand.MatchString(w) {
			break
		}
		words = append(words, strings.Trim(w, `'"`))
	}
	c, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if command.OnlyCommands(c) && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !placeholder.MatchString(rest[0]) {
		return cli.UnknownCommand(c, rest[0])
	}
	c.InitDefaultHelpFlag()
	err = c.ParseFlags(rest)
	if missing := (*pflag.ValueRequiredError)(nil); errors.As(err, &missing) {
		return nil // prose names a flag without a value
	}
	return err
}

// TestBalancerPage: the page of what a load balancer has names tests and benchmarks that exist, and the example has
// the number of lines that it says.
func TestBalancerPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/balancer.md")
	if err != nil {
		t.Fatal(err)
	}
	functions := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
	for _, pattern := range []string{"../*/*_test.go", "../../test/*_test.go", "../../test/*/*_test.go", "../../internal/*/*_test.go", "../../internal/*/*/*_test.go", "../../deploy/*/*_test.go", "../../e2e/*_test.go"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllSubmatch(text, -1) {
				functions[string(m[1])] = true
			}
		}
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 3 || cells[0] == "| what" {
			continue
		}
		rows++
		named := regexp.MustCompile("`((?:Test|Benchmark)\\w+)`").FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(named) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range named {
			if !functions[m[1]] {
				t.Errorf("there is no %s: %s", m[1], line)
			}
		}
	}
	example, err := os.ReadFile("../../docs/examples/three.yaml")
	if lines := fmt.Sprintf("| %d lines;", strings.Count(string(example), "\n")); err != nil || rows < 30 || !strings.Contains(string(page), lines) {
		t.Errorf("%d rows, and the example has %s %v", rows, lines, err)
	}
}

// TestParses proves that the check of command lines finds mistakes.
func TestParses(t *testing.T) {
	for line, ok := range map[string]bool{
		"render -f services.yaml | nft -c -f -":                       true,
		"status -o json | jq '.a[] | .b'":                             true,
		"COMMAND --help":                                              true,
		"rendr -f services.yaml":                                      false,
		"render --colour never":                                       false,
		"diff --from old/ -f new/ -o markdown >> \"$GITHUB_SUMMARY\"": true,
		"run ... -v 2                  # every transaction":           true,
		"migrate keep-of":                                             false,
	} {
		if err := parses(commandRoot(), line); (err == nil) != ok {
			t.Errorf("%s: %v", line, err)
		}
	}
}
