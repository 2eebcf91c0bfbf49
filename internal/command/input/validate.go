// Package input has the commands about files: new, import, validate and schema. They need no kernel.
package input

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

type validateOptions struct {
	files    []string
	warnings command.Warnings
	output   cli.Output
}

func ValidateCommand() *cobra.Command {
	var o validateOptions
	c := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check files without printing rules",
		Long: `Read the files as "run" would, and print problems, warnings and a summary. This
needs no kernel, no privileges and no configuration of a node.

A problem makes the files unusable: an unknown field, an address that is none,
an object that is defined twice. Two Balances that listen at the same address and
port are a problem, too, although "run" serves the first. A warning is about objects
that are served, but most likely not as their author expects, for example because the
name of a port differs between EndpointSlice and Service. A note is a remark, for
example about a Balance of several servers without a health check.

With -o json, each problem and warning is an object with file, line, object,
field and message: enough for an annotation in a code review.

Exit code: 0 valid, 2 problems, or warnings with --strict.`,
		Example: `  nftproxy validate -f services.yaml
  nftproxy validate -f services/ --strict
  kubectl get services,endpointslices -A -o yaml | nftproxy validate -f -
  nftproxy validate -f services.yaml -o json | jq -r '.warnings[].message'
  nftproxy validate -f services.yaml -o json |
    jq -r '(.problems + .warnings)[] | "::warning file=\(.file),line=\(.line)::\(.message)"'`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	command.AddFiles(c, &o.files)
	o.warnings.AddFlag(c)
	o.output.Add(c, "")
	return c
}

// findings are the report of validate. The names of the JSON fields are stable.
type findings struct {
	Valid    bool           `json:"valid"` // with --strict, no warnings either
	Summary  string         `json:"summary"`
	Objects  map[string]int `json:"objects,omitempty"` // number of each kind
	Problems []finding      `json:"problems"`
	Warnings []finding      `json:"warnings"`
	Notes    []finding      `json:"notes,omitempty"` // nothing is wrong
}

// finding is a problem or a warning; unknown fields are empty or zero.
type finding struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Object  string `json:"object,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`

	text string
}

func (o *validateOptions) run(c *cobra.Command) error {
	if len(o.files) == 0 {
		return errors.New("no input: name a file with -f, or - for standard input")
	}
	defer thrifty()()
	input, err := (&files.Reader{Paths: o.files, Stdin: c.InOrStdin()}).Load()
	var problems manifest.Errors
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	f := o.find(input, problems)
	err = o.output.Print(c.OutOrStdout(), f, func(w io.Writer) error { return f.print(w, o.output.Paint) })
	switch {
	case err != nil:
		return fmt.Errorf("write findings: %w", err)
	case !f.Valid:
		return cli.ErrInvalid
	}
	return nil
}

// thriftyGC is the value of GOGC of validate. All objects are in memory at once, and it often runs
// where memory is scarce: in a job of a pipeline.
const thriftyGC = 25

// thrifty lets the collector run more often until the function that it returns is called, unless
// the user has decided.
func thrifty() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(thriftyGC)
	return func() { debug.SetGCPercent(before) }
}

func (o *validateOptions) find(in *files.Input, problems manifest.Errors) *findings {
	f := &findings{Problems: findingsOf(problems), Warnings: []finding{}}
	if in == nil {
		f.Summary = "invalid: " + terminal.Count(len(problems), "problem")
		return f
	}
	warned, notes := in.Warnings.Split()
	places := sync.OnceValue(in.Places)
	f.Warnings, f.Notes = findingsOf(warned), append(findingsOf(notes), unchecked(in, places)...)
	router := in.Snapshot.Route(model.Config{})
	f.Warnings = append(f.Warnings, loops(in, router, places)...)
	for _, n := range router.Notices() {
		if n.Reason == model.Conflict { // the others depend on the node
			found := newFinding(&manifest.Error{Place: places()[n.Object], Object: n.Object.String(), Err: errors.New(n.Message)})
			if n.Object.Kind == balance.Kind { // none of which can have been there before another
				f.Problems = append(f.Problems, found)
			} else {
				f.Warnings = append(f.Warnings, found)
			}
		}
	}
	f.Objects = in.Objects
	f.Valid = len(f.Problems) == 0 && (!o.warnings.Strict || len(f.Warnings) == 0)
	f.Summary = countKinds(in.Objects) + ": " + f.verdict()
	return f
}

// loops warns of endpoints that are an address and port of another Service or Balance: files have a warning of their own about an address of the Balance itself.
func loops(in *files.Input, router *model.Router, places func() map[model.Object]manifest.Place) (warned []finding) {
	for _, s := range in.Snapshot.Services {
		others := slices.DeleteFunc(router.Loops(s.Name), func(l model.Loop) bool { return l.Of == s.Object() })
		for _, text := range model.LoopTexts(others, s.Words()) {
			warned = append(warned, newFinding(&manifest.Error{Place: places()[s.Object()], Object: s.Object().String(), Err: errors.New(text)}))
		}
	}
	return warned
}

// unchecked returns a note for each Balance that has several servers and no health check.
func unchecked(in *files.Input, places func() map[model.Object]manifest.Place) (notes []finding) {
	servers := make(map[model.ServiceName]map[netip.Addr]bool)
	for _, s := range in.Snapshot.Services {
		if s.Balance && s.Check == nil {
			servers[s.Name] = make(map[netip.Addr]bool)
		}
	}
	for _, slice := range in.Snapshot.Slices {
		if all := servers[slice.ServiceName()]; all != nil {
			for i := range slice.Hosts {
				all[slice.Hosts[i].Address] = true
			}
		}
	}
	for _, s := range in.Snapshot.Services {
		if len(servers[s.Name]) > 1 {
			notes = append(notes, newFinding(&manifest.Error{Place: places()[s.Object()], Object: s.Object().String(), Note: true,
				Err: &manifest.FieldError{Field: "check", Problem: "missing: a dead server keeps its share of the connections; " + checkFor(s)}}))
		}
	}
	return notes
}

func checkFor(s *model.Service) string {
	if slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.Protocol == model.TCP }) {
		return "add for example \"check: tcp\""
	}
	return "docs/health-checks.md has checks for each protocol"
}

// countKinds returns for example "3 Services, 4 EndpointSlices, 1 Node".
func countKinds(objects map[string]int) string {
	var parts []string
	for _, kind := range []string{"Balance", "Service", "EndpointSlice", "Endpoints", "Node", "ServiceCIDR"} {
		switch n := objects[kind]; {
		case kind == "Endpoints" && n > 0:
			parts = append(parts, fmt.Sprintf("%d Endpoints", n))
		case n > 0:
			parts = append(parts, terminal.Count(n, kind))
		}
	}
	if len(parts) == 0 { // lists of servers and defaults alone
		return "no Balance or Service"
	}
	return strings.Join(parts, ", ")
}

func (f *findings) verdict() string {
	switch n := len(f.Warnings); {
	case len(f.Problems) > 0:
		return "invalid: " + terminal.Count(len(f.Problems), "problem")
	case n == 0:
		return "valid"
	case f.Valid:
		return "valid, " + terminal.Count(n, "warning")
	default:
		return terminal.Count(n, "warning") + " (--strict)"
	}
}

func findingsOf(all manifest.Errors) []finding {
	out := make([]finding, 0, len(all))
	for _, e := range all {
		out = append(out, newFinding(e))
	}
	return out
}

func newFinding(e *manifest.Error) finding {
	f := finding{File: e.File, Line: e.Line, Object: e.Object, Message: terminal.Printable(e.Err.Error()), text: e.Error()}
	if field := (*manifest.FieldError)(nil); errors.As(e.Err, &field) {
		f.Field = field.Field
		f.Message = (&manifest.FieldError{Value: field.Value, Problem: field.Problem}).Error()
	}
	return f
}

// print writes a line for each problem and warning, the first ones if there are many,
// and the summary.
func (f *findings) print(w io.Writer, paint bool) error {
	list := func(kind string, all []finding) (lines []string) {
		for i := range all {
			lines = append(lines, kind+": "+all[i].text)
		}
		return lines
	}
	lines := manifest.Shorten(slices.Concat(list("error", f.Problems), list("warning", f.Warnings)), shownFindings)
	lines = append(lines, manifest.Shorten(list("note", f.Notes), manifest.MaxShown)...)
	lines = append(lines, f.colour().Paint(f.Summary, paint))
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func (f *findings) colour() terminal.Colour {
	switch {
	case !f.Valid:
		return terminal.Red
	case len(f.Warnings) > 0:
		return terminal.Yellow
	}
	return terminal.Green
}

const shownFindings = 100

func SchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a Balance, for editors",
		Long: `Print the JSON Schema of the kinds Balance, Servers and Defaults. Editors with
yaml-language-server (Visual Studio Code, Vim, Emacs...) complete and check a file whose first line is

  # yaml-language-server: $schema=balance.json

with the path or URL of the schema. "nftproxy validate" checks more than the
schema can express.

Exit code: 0 printed, 2 error.`,
		Example: `  nftproxy schema > balance.json`,
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := c.OutOrStdout().Write(balance.Schema()); err != nil {
				return fmt.Errorf("write schema: %w", err)
			}
			return nil
		},
	}
}
