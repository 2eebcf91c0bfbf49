package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/command"
)

var update = flag.Bool("update", false, "write docs/cli.md, docs/man and the generated parts of docs/ci.md")

const (
	referencePage = "../../docs/cli.md"
	manPages      = "../../docs/man"
)

// TestReference compares the reference of the command line and the manual pages
// with the commands. "make docs" writes them.
func TestReference(t *testing.T) {
	want := map[string][]byte{referencePage: reference()}
	for _, c := range commandTree() {
		want[filepath.Join(manPages, manName(c)+".1")] = manual(c)
	}
	old, err := filepath.Glob(manPages + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if want[path] == nil && filepath.Base(path) != filePage {
			want[path] = nil // of a command that is gone
		}
	}
	for path, text := range want {
		if *update {
			if err := replace(path, text); err != nil {
				t.Fatal(err)
			}
		}
		if is, err := os.ReadFile(path); text != nil && (err != nil || !bytes.Equal(is, text)) || text == nil && err == nil {
			t.Errorf("%s does not match the commands (%v): run \"make docs\"", path, err)
		}
	}
}

func replace(path string, text []byte) error {
	if text == nil {
		return os.Remove(path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// commandTree returns the program and its commands, in the order of the help.
func commandTree() []*cobra.Command {
	root := rootCommand()
	root.InitDefaultCompletionCmd()
	return append([]*cobra.Command{root}, below(root)...) // without --help, which all have
}

// below returns the commands of a command and below it, without those of completion.
func below(c *cobra.Command) (out []*cobra.Command) {
	for _, g := range command.GroupCommands(c) {
		for _, sub := range g.Commands {
			if sub.Name() == "help" {
				continue
			}
			out = append(out, sub)
			if sub.Name() != "completion" {
				out = append(out, below(sub)...)
			}
		}
	}
	return out
}

// reference returns docs/cli.md.
func reference() []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, "# Command line\n\n"+
		"What `nftproxy COMMAND --help` prints, on one page. `make docs` writes it and the [manual pages](man) from the\n"+
		"commands, and `nftproxy completion SHELL` prints completions.\n\n")
	tree := commandTree()
	for _, c := range tree {
		fmt.Fprintf(&b, "- [`%s`](#%s): %s\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	}
	fmt.Fprint(&b, "- [Flags of several commands](#flags-of-several-commands)\n- [Exit codes](#exit-codes)\n")
	shared := sharedFlags(tree)
	for _, c := range tree {
		commandSection(&b, c, shared)
	}
	fmt.Fprint(&b, "\n## Flags of several commands\n")
	for _, g := range shared {
		fmt.Fprintf(&b, "\n### %s\n\n| flag | meaning |\n|---|---|\n", g.title)
		for _, f := range g.flags {
			b.WriteString(flagRow(f.Flag, g.only(f)))
		}
	}
	fmt.Fprint(&b, "\n## Exit codes\n\nEach command says above when it ends with which.\n\n| code | meaning |\n|---|---|\n")
	for code, meaning := range cli.Codes {
		fmt.Fprintf(&b, "| %d | %s |\n", code, meaning)
	}
	return b.Bytes()
}

func commandSection(w io.Writer, c *cobra.Command, shared []*sharedGroup) {
	text, exit := splitDescription(c)
	fmt.Fprintf(w, "\n## %s\n\n%s\n```\n%s\n```\n", c.CommandPath(), markdown(text), strings.Join(command.UsageLines(c), "\n"))
	if exit != "" {
		fmt.Fprintf(w, "\n**Exit code:** %s\n", inline(exit))
	}
	if c.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n\n```\n%s\n```\n", outdent(c.Example))
	}
	var links, rows []string
	groups := command.GroupFlags(c)
	for _, group := range groups.Order {
		title, link := "| **"+group+"** | |\n", false
		if group == string(declare.Own) {
			title = ""
		}
		groups.FlagSets[group].VisitAll(func(f *pflag.Flag) {
			if slices.ContainsFunc(shared, func(s *sharedGroup) bool { return s.title == group && s.shares(f) }) {
				link = true
				return
			}
			rows = append(rows, title+flagRow(f, ""))
			title = ""
		})
		if link {
			links = append(links, fmt.Sprintf("[%s](#%s)", group, strings.ReplaceAll(strings.ToLower(group), " ", "-")))
		}
	}
	if len(rows) > 0 {
		fmt.Fprintf(w, "\n| flag | meaning |\n|---|---|\n%s", strings.Join(rows, ""))
	}
	if c.Name() == "run" {
		compatibilityRows(w, c)
	}
	if len(links) > 0 {
		fmt.Fprintf(w, "\nShared flags: %s.\n", strings.Join(links, ", "))
	}
}

// sharedTitles are the groups of flags that mean the same for all commands.
var sharedTitles = []string{"Input", "API server", "Node and pods", "Balancing", "Log"}

// sharedFlag is a flag of several commands with the same description.
type sharedFlag struct {
	*pflag.Flag
	commands []string
}

// sharedGroup is a group of them. Its commands have at least one of its flags.
type sharedGroup struct {
	title    string
	flags    []*sharedFlag
	commands []string
}

// sharedFlags returns the groups of these titles with the flags that at least two
// commands have.
func sharedFlags(tree []*cobra.Command) (out []*sharedGroup) {
	for _, title := range sharedTitles {
		out = append(out, &sharedGroup{title: title})
	}
	for _, c := range tree {
		for title, set := range command.GroupFlags(c).FlagSets {
			if i := slices.Index(sharedTitles, title); i >= 0 {
				set.VisitAll(func(f *pflag.Flag) { out[i].add(c, f) })
			}
		}
	}
	for _, g := range out {
		g.flags = slices.DeleteFunc(g.flags, func(f *sharedFlag) bool { return len(f.commands) < 2 })
		for _, f := range g.flags {
			g.commands = append(g.commands, f.commands...)
		}
		slices.Sort(g.commands)
		g.commands = slices.Compact(g.commands)
	}
	return out
}

// add adds a command's flag, unless it has another description there than elsewhere.
func (g *sharedGroup) add(c *cobra.Command, f *pflag.Flag) {
	i := slices.IndexFunc(g.flags, func(s *sharedFlag) bool { return s.Name == f.Name })
	switch {
	case i < 0:
		g.flags = append(g.flags, &sharedFlag{f, []string{c.Name()}})
	case g.flags[i].Usage == f.Usage:
		g.flags[i].commands = append(g.flags[i].commands, c.Name())
	}
}

// shares reports whether the description of a command's flag is the shared one.
func (g *sharedGroup) shares(f *pflag.Flag) bool {
	return slices.ContainsFunc(g.flags, func(s *sharedFlag) bool { return s.Name == f.Name && s.Usage == f.Usage })
}

// only names the commands with a flag, if others have flags of its group.
func (g *sharedGroup) only(f *sharedFlag) string {
	if len(f.commands) == len(g.commands) {
		return ""
	}
	return "`" + strings.Join(f.commands, "`, `") + "`: "
}

func flagRow(f *pflag.Flag, before string) string {
	value, usage := usageOf(f)
	names := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		names = "`-" + f.Shorthand + "`, " + names
	}
	if value != "" {
		names += " *" + value + "*"
	}
	return fmt.Sprintf("| %s | %s |\n", cell(names), cell(before+inline(usage)))
}

func compatibilityRows(w io.Writer, c *cobra.Command) {
	without, alias := command.Compatibility(c)
	fmt.Fprint(w, "| **Accepted from kube-proxy's command line** | |\n")
	for _, name := range alias {
		fmt.Fprintf(w, "| `--%s` | %s |\n", name, inline(command.Aliases[name]))
	}
	fmt.Fprintf(w, "| without an effect | `%s` |\n", strings.Join(without, "`, `"))
}

// manual returns the manual page of a command.
func manual(c *cobra.Command) []byte {
	var b bytes.Buffer
	text, exit := splitDescription(c)
	fmt.Fprintf(&b, "%% \"%s\" \"1\" \"\" \"nftproxy\" \"nftproxy\"\n", strings.ToUpper(manName(c)))
	fmt.Fprintf(&b, "# NAME\n%s - %s\n# SYNOPSIS\n%s\n# DESCRIPTION\n%s\n",
		manName(c), inline(c.Short), synopsis(c), markdown(text))
	if c.HasAvailableSubCommands() && c.Name() != "completion" {
		fmt.Fprint(&b, "# COMMANDS\n")
		for _, sub := range below(c) {
			fmt.Fprintf(&b, "**%s**(1)\n: %s\n\n", manName(sub), inline(sub.Short))
		}
	}
	groups := command.GroupFlags(c)
	if len(groups.Order) > 0 {
		fmt.Fprint(&b, "# OPTIONS\n")
	}
	for _, title := range groups.Order {
		if title != string(declare.Own) {
			fmt.Fprintf(&b, "### %s\n", title)
		}
		groups.FlagSets[title].VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
	}
	if c.Name() == "run" {
		without, alias := command.Compatibility(c)
		fmt.Fprint(&b, "### Accepted from kube-proxy's command line\n")
		for _, name := range alias {
			fmt.Fprintf(&b, "**--%s**\n: %s\n\n", name, inline(command.Aliases[name]))
		}
		fmt.Fprintf(&b, "Without an effect\n: %s\n", strings.Join(without, ", "))
	}
	if exit != "" {
		fmt.Fprintf(&b, "# EXIT STATUS\n%s\n", inline(exit))
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "# EXAMPLES\n```\n%s\n```\n", outdent(c.Example))
	}
	if c.HasParent() {
		fmt.Fprint(&b, "# SEE ALSO\n**nftproxy**(1), **nft**(8)\n")
	}
	return md2man.Render(b.Bytes())
}

func manFlag(w io.Writer, f *pflag.Flag) {
	value, usage := usageOf(f)
	if f.Shorthand != "" {
		fmt.Fprintf(w, "**-%s**, ", f.Shorthand)
	}
	fmt.Fprintf(w, "**--%s**", f.Name)
	if value != "" {
		fmt.Fprintf(w, " *%s*", value)
	}
	fmt.Fprintf(w, "\n: %s\n\n", inline(usage))
}

func synopsis(c *cobra.Command) string {
	var lines []string
	for _, line := range command.UsageLines(c) {
		lines = append(lines, "**"+c.CommandPath()+"**"+inline(strings.TrimPrefix(line, c.CommandPath())))
	}
	return strings.Join(lines, "\n\n")
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// TestExitCodes: what a command says about its exit codes has only codes that there are, and begins with success.
func TestExitCodes(t *testing.T) {
	code := regexp.MustCompile(`(?:^|[;,.:] )(\d+) `)
	for _, c := range commandTree() {
		_, exit := splitDescription(c)
		if exit != "" && exit[0] != '0' {
			t.Errorf("%s begins with %q", c.CommandPath(), exit)
		}
		for _, m := range code.FindAllStringSubmatch(exit, -1) {
			if n, err := strconv.Atoi(m[1]); err != nil || n >= len(cli.Codes) {
				t.Errorf("%s ends with %s, which means nothing", c.CommandPath(), m[1])
			}
		}
	}
}

// splitDescription returns the description of a command and its exit codes.
func splitDescription(c *cobra.Command) (text, exit string) {
	text, exit, _ = strings.Cut(command.Description(c), "\n\nExit code:")
	return strings.TrimSpace(text), strings.Join(strings.Fields(exit), " ")
}

// usageOf returns the name of a flag's value, and its description with the default.
func usageOf(f *pflag.Flag) (value, usage string) {
	value, usage = pflag.UnquoteUsage(f)
	if !slices.Contains([]string{"", "false", "0", "0s", "[]"}, f.DefValue) {
		usage += fmt.Sprintf(" (default `%s`)", strings.Trim(f.DefValue, "[]"))
	}
	return value, usage
}

// markdown returns a description with its indented paragraphs as code.
func markdown(text string) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(strings.ReplaceAll(text, "\n\n\n", "\n\n"), "\n\n") {
		if i > 0 {
			b.WriteString("\n")
		}
		switch {
		case strings.HasPrefix(paragraph, "  "), strings.HasPrefix(paragraph, "\t"):
			b.WriteString("```\n" + outdent(paragraph) + "\n```\n")
		default:
			b.WriteString(inline(paragraph) + "\n")
		}
	}
	return b.String()
}

var (
	special  = regexp.MustCompile(`[<*\[\]]`)
	verbatim = regexp.MustCompile("`[^`]*`" + `|"((?:nftproxy|nft|kubectl|kube-proxy)(?: [^"]*)?)"|--[a-z-]+[a-z](?:=[a-zA-Z]+)?|\B-[a-zA-Z]\b`)
)

// inline returns a text with commands and flags as code.
func inline(text string) string {
	text = verbatim.ReplaceAllStringFunc(text, func(s string) string { return "`" + strings.Trim(s, "\"`") + "`" })
	parts := strings.Split(text, "`") // every other one is code
	for i := 0; i < len(parts); i += 2 {
		parts[i] = special.ReplaceAllString(parts[i], `\$0`)
	}
	return strings.Join(parts, "`")
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// outdent removes the indentation of examples.
func outdent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}

// TestInstall installs the program with its manual pages and completions.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	command := exec.Command("make", "-C", "../..", "install", "BINARY="+os.Args[0], "DESTDIR="+dir, "PREFIX=/usr")
	command.Env = append(os.Environ(), beProgram+"=1")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for path, want := range map[string]string{
		"bin/nftproxy":                                  "",
		"lib/systemd/system/nftproxy.service":           "ExecStart=/usr/bin/nftproxy run ",
		"share/bash-completion/completions/nftproxy":    "__start_nftproxy",
		"share/zsh/site-functions/_nftproxy":            "#compdef nftproxy",
		"share/fish/vendor_completions.d/nftproxy.fish": "complete -c nftproxy",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, "usr", path)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, or lacks %q", path, err, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "usr/share/man/man5", filePage)); err != nil || !bytes.Contains(text, []byte("whenAllFail")) {
		t.Errorf("manual page of a Balance: %v, %d bytes", err, len(text))
	}
	for _, c := range commandTree() {
		text, err := os.ReadFile(filepath.Join(dir, "usr/share/man/man1", manName(c)+".1"))
		if err != nil || !bytes.Contains(text, []byte(".SH NAME\n"+manName(c)+" \\- ")) {
			t.Errorf("manual page of %s: %v, %d bytes", c.CommandPath(), err, len(text))
		}
	}
}
