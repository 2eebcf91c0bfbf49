package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// newOptions are the flags of new: the fields of a Balance as text.
type newOptions struct {
	name, namespace    string
	protocols, backups []string
	texts              map[*setting.Setting]*string
	lists              map[*setting.Setting]*[]string
}

func newCommand() *cobra.Command {
	var o newOptions
	c := &cobra.Command{
		Use:   "new LISTEN[,LISTEN] BACKEND...",
		Short: "Print a file that balances an address over servers",
		Long: `Print a Balance: a file for "nftproxy run -f", in which connections to LISTEN go
to the BACKENDs in turn.

LISTEN is an address with a port or a range of ports, like 203.0.113.10:443,
[2001:db8::10]:443 or 203.0.113.10:10000-10099/udp, or with all ports, like
203.0.113.10:all; several are separated by commas. A BACKEND is an address with
a port, or without one if that is the port of LISTEN. Write the output to a file
and edit it: docs/standalone.md has all fields, and says how several Balances share
servers (kind Servers) and settings (kind Defaults).

A server that is down takes no connections as long as another one answers: the file
has a health check, "check: tcp" if a port of LISTEN is of TCP, unless --check asks
for another one, or for none.

Exit code: 0 printed, 2 wrong arguments.`,
		Example: `  nftproxy new 203.0.113.10:443 10.128.0.2:8443 10.128.0.3:8443 > web.yaml
  nftproxy new 203.0.113.10:443 10.128.0.2 10.128.0.3 --name web --check none
  nftproxy new 203.0.113.10:80 10.128.0.2 --check '{http: /healthz, interval: 5s}'
  nftproxy new 203.0.113.10:53,[2001:db8::10]:53 10.128.0.2 fd00::2 --protocol tcp,udp
  nftproxy new 203.0.113.10:443 10.128.0.2 --backup 10.128.0.9
  nftproxy new 203.0.113.10:443 10.128.0.2 --limits '{connections: 1000, ratePerClient: 10/second}'
  nftproxy new 203.0.113.10:443 10.128.0.2 | nftproxy render -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("expected an address with a port, and the servers behind it: nftproxy new 203.0.113.10:443 10.128.0.2:8443 10.128.0.3:8443")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "`name` of the Balance; by default the first address and port")
	f.StringVar(&o.namespace, "namespace", "", "`namespace` of the Balance, default if there is none")
	f.StringSliceVar(&o.protocols, "protocol", nil, "`protocols`: tcp, udp, sctp, or several with commas")
	f.StringArrayVar(&o.backups, "backup", nil, "`address` of a server that stands by while another one is usable; can be given several times")
	o.texts, o.lists = make(map[*setting.Setting]*string), make(map[*setting.Setting]*[]string)
	for _, s := range setting.Flags() {
		if s.Form == setting.List {
			o.lists[s] = f.StringSlice(s.Flag(), nil, s.Usage())
		} else {
			o.texts[s] = f.String(s.Flag(), "", s.Usage())
		}
	}
	f.Lookup(setting.Check.Flag()).Usage += "; by default tcp, if a port fits, and \"" + noCheck + "\" asks for none"
	return c
}

func (o *newOptions) run(c *cobra.Command, args []string) error {
	for _, s := range setting.Flags() {
		var value any
		if s.Form != setting.Raw {
			continue
		}
		if text := *o.texts[s]; yaml.Unmarshal([]byte(text), &value) != nil || strings.Contains(text, "\n") {
			return fmt.Errorf("--%s: %q cannot be read: write it like %s", s.Flag(), text, strings.Join(s.Examples, " or "))
		}
	}
	if check := o.texts[setting.Check]; *check == noCheck {
		*check = ""
	} else if !c.Flags().Changed(setting.Check.Flag()) {
		o.addCheck(args)
	}
	text := o.text(args)
	input, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
	var problems manifest.Errors
	if errors.As(err, &problems) {
		return errors.New(strings.Join(ofArguments(problems), "\n"))
	} else if err != nil {
		return err
	}
	for _, line := range ofArguments(input.Warnings) {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", line)
	}
	if _, err := io.WriteString(c.OutOrStdout(), text); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// noCheck is the value of --check for a file without a health check.
const noCheck = "none"

// addCheck adds a health check that fits the ports, if there is one.
func (o *newOptions) addCheck(args []string) {
	check := o.texts[setting.Check]
	*check = model.CheckTCP.String()
	if _, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(o.text(args))}).Load(); err != nil {
		*check = "" // the cause may be another argument
	}
}

// ofArguments returns a line for each problem with the text, as one with an argument.
func ofArguments(problems manifest.Errors) []string {
	var lines []string
	for _, p := range problems {
		line := p.Err.Error()
		if f := (*manifest.FieldError)(nil); errors.As(p.Err, &f) {
			line = argument(f.Field) + (&manifest.FieldError{Value: f.Value, Problem: f.Problem}).Error()
		}
		lines = append(lines, terminal.Printable(line))
	}
	return lines
}

// argument returns the argument from which a field of the text comes, as the beginning
// of a message.
func argument(field string) string {
	name, rest := field, ""
	if i := strings.IndexAny(field, ".["); i >= 0 {
		name, rest = field[:i], field[i:]
	}
	switch {
	case name == "":
		return ""
	case name == "listen":
		return "LISTEN: "
	case name == "backends":
		return "BACKEND: "
	case strings.HasPrefix(rest, "["):
		rest = ""
	}
	return "--" + setting.FlagOf(name) + rest + ": "
}

// notInName are the characters that a name cannot have.
var notInName = regexp.MustCompile(`[^a-z0-9]`)

// text returns a Balance.
func (o *newOptions) text(args []string) string {
	listen := strings.Split(args[0], ",")
	if o.name == "" {
		address, _, _ := strings.Cut(listen[0], "/")
		o.name = "vip-" + strings.Trim(notInName.ReplaceAllString(strings.ToLower(address), "-"), "-")
	}
	var b strings.Builder
	line := func(field, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", field, value)
		}
	}
	line("kind", balance.Kind)
	line("name", yamlText(o.name))
	line("namespace", yamlText(o.namespace))
	line("listen", oneOrMore(listen))
	line("protocol", oneOrMore(o.protocols))
	b.WriteString("backends:\n")
	for _, a := range args[1:] {
		fmt.Fprintf(&b, "- %s\n", yamlText(a))
	}
	for _, a := range o.backups {
		fmt.Fprintf(&b, "- {address: %s, backup: true}\n", yamlText(a))
	}
	for _, s := range setting.Flags() {
		switch s.Form {
		case setting.List:
			line(s.Field, oneOrMore(*o.lists[s]))
		case setting.Raw:
			line(s.Field, *o.texts[s])
		default:
			line(s.Field, yamlText(*o.texts[s]))
		}
	}
	return b.String()
}

// yamlText is [balance.Quoted] for a text that may be missing.
func yamlText(text string) string {
	if text == "" {
		return ""
	}
	return balance.Quoted(text)
}

// oneOrMore returns texts as YAML, a list if there are several.
func oneOrMore(texts []string) string {
	out := make([]string, len(texts))
	for i, t := range texts {
		if out[i] = yamlText(t); t == "" && len(texts) > 1 {
			out[i] = `""`
		}
	}
	if len(out) > 1 {
		return "[" + strings.Join(out, ", ") + "]"
	}
	return strings.Join(out, "")
}
