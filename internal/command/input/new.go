package input

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/yamltext"
)

// newObject is what new prints: its fields as text.
type newObject struct {
	kind, name, namespace   string
	listen, protocols       []string
	list                    string // the field with the servers
	pools, servers, backups []string
	settings                settingFlags
}

func BalanceCommand() *cobra.Command {
	o := newObject{kind: balance.Kind, list: "backends"}
	c := &cobra.Command{
		Use:   "new LISTEN[,LISTEN] BACKEND...",
		Short: "Print a file that balances an address over servers",
		Long: `Print a Balance: a file for "nftproxy run -f", in which connections to LISTEN go
to the BACKENDs in turn. "new servers" prints a list of servers for several Balances,
which --servers names, and "new defaults" settings that they share.

LISTEN is an address with a port or a range of ports, like 203.0.113.10:443,
[2001:db8::10]:443 or 203.0.113.10:10000-10099/udp, or with all ports, like
203.0.113.10:all; several are separated by commas. A BACKEND is an address with
a port, or without one if that is the port of LISTEN. Write the output to a file
and edit it: docs/standalone.md has all fields.

A server that is down takes no connections as long as another one answers: the file
has a health check, "check: tcp" if a port of LISTEN is of TCP, unless --check asks
for another one, or for none. With --servers it has none: the list has one.

Exit code: 0 printed, 2 wrong arguments.`,
		Example: `  nftproxy new 203.0.113.10:443 10.128.0.2:8443 10.128.0.3:8443 > web.yaml
  nftproxy new 203.0.113.10:443 10.128.0.2 10.128.0.3 --name web --check none
  nftproxy new 203.0.113.10:80 10.128.0.2 --check '{http: /healthz, interval: 5s}'
  nftproxy new 203.0.113.10:53,[2001:db8::10]:53 10.128.0.2 fd00::2 --protocol tcp,udp
  nftproxy new 203.0.113.10:443 10.128.0.2 --backup 10.128.0.9
  nftproxy new 203.0.113.10:443 10.128.0.2 --limits '{connections: 1000, ratePerClient: 10/second}'
  nftproxy new 203.0.113.10:443 --servers app:8443
  nftproxy new 203.0.113.10:443 10.128.0.2 | nftproxy render -f -`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && !strings.ContainsAny(args[0], ":.") {
				if hint := suggest.DidYouMean(suggest.Similar(args[0], []string{newServers, newDefaults})); hint != "" {
					return fmt.Errorf("%q is not an address with a port%s", args[0], hint)
				}
			}
			if len(args) == 0 || len(args) == 1 && len(o.pools) == 0 {
				return errors.New("expected an address with a port, and the servers behind it: nftproxy new 203.0.113.10:443 10.128.0.2:8443 10.128.0.3:8443")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.listen, o.servers = strings.Split(args[0], ","), args[1:]
			if o.name == "" {
				address, _, _ := strings.Cut(o.listen[0], "/")
				o.name = "vip-" + strings.Trim(notInName.ReplaceAllString(strings.ToLower(address), "-"), "-")
			}
			return o.print(c)
		},
	}
	c.AddCommand(newServersCommand(), newDefaultsCommand())
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "`name` of the Balance; by default the first address and port")
	f.StringVar(&o.namespace, "namespace", "", "`namespace` of the Balance, default if there is none")
	f.StringSliceVar(&o.protocols, "protocol", nil, "`protocols`: tcp, udp, sctp, or several with commas")
	declare.Values(f, "protocol", "tcp", "udp", "sctp")
	f.StringArrayVar(&o.backups, "backup", nil, "`address` of a server that stands by while another one is usable; can be given several times")
	f.StringArrayVar(&o.pools, "servers", nil, "`name` of a list of servers, the kind Servers, with a port if the list has none, like app or app:8443; can be given several times")
	o.settings = addSettings(f, setting.Flags())
	o.settings.allowNoCheck(f, "tcp, if a port fits,")
	return c
}

// print prints the object, if nothing is wrong with it.
func (o *newObject) print(c *cobra.Command) error {
	if err := o.settings.readable(); err != nil {
		return err
	}
	if check := o.settings.texts[setting.Check]; o.list != "" && o.settings.needsCheck(c.Flags()) && len(o.pools) == 0 {
		*check = model.CheckTCP.String()
		if _, err := o.load(); err != nil && o.kind == balance.Kind { // the ports may be of another protocol; the cause may be another argument, too
			*check = ""
		}
	}
	input, err := o.load()
	var problems manifest.Errors
	if errors.As(err, &problems) {
		return errors.New(strings.Join(ofArguments(problems), "\n"))
	} else if err != nil {
		return err
	}
	// That a list has no users is not about a field.
	warnings := slices.DeleteFunc(input.Warnings, func(w *manifest.Error) bool { return !errors.As(w.Err, new(*manifest.FieldError)) })
	for _, line := range ofArguments(warnings) {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", line)
	}
	if _, err := io.WriteString(c.OutOrStdout(), o.text()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// load reads the object as a file, beside lists of servers with the names that it has.
func (o *newObject) load() (*files.Input, error) {
	text := o.text()
	for _, name := range o.poolNames() {
		text += "---\nkind: " + balance.PoolKind + "\nname: " + yamlText(name) + "\nnamespace: " + yamlText(o.namespace) + "\nservers: [" + placeholders(strings.Join(o.listen, ",")) + "]\n"
	}
	return (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
}

// placeholders are servers of the families of a LISTEN, from the range for tests of networks (RFC 2544, RFC 5180).
func placeholders(listen string) string {
	const ipv4, ipv6 = "198.18.0.1", `"2001:2::1"`
	switch {
	case !strings.Contains(listen, "["):
		return ipv4
	case strings.Contains(listen, "."):
		return ipv4 + ", " + ipv6
	}
	return ipv6
}

// ofArguments returns a line for each problem with the text, as one with an argument.
func ofArguments(problems manifest.Errors) []string {
	var lines []string
	for _, p := range problems {
		line := p.Err.Error()
		if f := (*manifest.FieldError)(nil); errors.As(p.Err, &f) {
			name := argument(f.Field)
			if p.Document > 1 { // stands in for a list of servers
				name = "--servers: "
			}
			line = name + (&manifest.FieldError{Value: f.Value, Problem: f.Problem}).Error()
		}
		if line = terminal.Printable(line); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
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
	case name == "backends" && strings.HasSuffix(rest, ".servers"):
		return "--servers: "
	case name == "backends":
		return "BACKEND: "
	case name == "servers":
		return "SERVER: "
	case strings.HasPrefix(rest, "["):
		rest = ""
	}
	return "--" + setting.FlagOf(name) + rest + ": "
}

var notInName = regexp.MustCompile(`[^a-z0-9]`)

func (o *newObject) text() string {
	var b strings.Builder
	line := func(field, value string) { writeField(&b, field, value) }
	line("kind", o.kind)
	line("name", yamlText(o.name))
	line("namespace", yamlText(o.namespace))
	line("listen", oneOrMore(o.listen))
	line("protocol", oneOrMore(o.protocols))
	if o.list != "" {
		b.WriteString(o.list + ":\n")
	}
	o.writePools(&b)
	for _, a := range o.servers {
		fmt.Fprintf(&b, "- %s\n", yamlText(a))
	}
	for _, a := range o.backups {
		fmt.Fprintf(&b, "- {address: %s, backup: true}\n", yamlText(a))
	}
	o.settings.write(&b)
	return b.String()
}

func (o *newObject) poolNames() (out []string) {
	for _, p := range o.pools {
		if name, _, _ := strings.Cut(p, ":"); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func (o *newObject) writePools(b *strings.Builder) {
	for _, p := range o.pools {
		name, port, found := strings.Cut(p, ":")
		switch _, err := strconv.ParseUint(port, 10, 16); {
		case !found:
		case err == nil:
			port = ", port: " + port
		default: // a range, or a mistake
			port = ", port: " + strconv.Quote(port)
		}
		fmt.Fprintf(b, "- {servers: %s%s}\n", yamltext.Quote(name), port)
	}
}

// yamlText is [yamltext.Quote] for a text that may be missing.
func yamlText(text string) string {
	if text == "" {
		return ""
	}
	return yamltext.Quote(text)
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

// Names of the commands below new.
const (
	newServers  = "servers"
	newDefaults = "defaults"
)

type settingFlags struct {
	of    []*setting.Setting
	texts map[*setting.Setting]*string
	lists map[*setting.Setting]*[]string
}

func addSettings(f *pflag.FlagSet, of []*setting.Setting) settingFlags {
	out := settingFlags{of, make(map[*setting.Setting]*string), make(map[*setting.Setting]*[]string)}
	for _, s := range of {
		declare.In(f, groupOf(s), func() {
			if s.Form == setting.List {
				out.lists[s] = f.StringSlice(s.Flag(), nil, s.Usage())
			} else {
				out.texts[s] = f.String(s.Flag(), "", s.Usage())
			}
		})
		switch {
		case s == setting.Check:
			declare.Values(f, s.Flag(), model.CheckTypes[:]...)
		case s.Words != nil:
			declare.Values(f, s.Flag(), s.Words...)
		}
	}
	return out
}

func groupOf(s *setting.Setting) declare.Group {
	switch s {
	case setting.AllowedClients, setting.DeniedClients, setting.ClientAddresses, setting.MasqueradeFrom, setting.Limits, setting.Affinity:
		return declare.Clients
	case setting.Relay, setting.Timeout:
		return declare.Relay
	case setting.Observe:
		return declare.Refused
	}
	return declare.Balancing
}

// noCheck is the value of --check for a file without a health check.
const noCheck = "none"

// allowNoCheck adds [noCheck] to --check, and a default to its help.
func (o settingFlags) allowNoCheck(f *pflag.FlagSet, byDefault string) {
	f.Lookup(setting.Check.Flag()).Usage += "; by default " + byDefault + " and \"" + noCheck + "\" asks for none"
	declare.Values(f, setting.Check.Flag(), append(model.CheckTypes[:], noCheck)...)
}

func (o settingFlags) needsCheck(f *pflag.FlagSet) bool {
	if check := o.texts[setting.Check]; *check == noCheck {
		*check = ""
		return false
	}
	return !f.Changed(setting.Check.Flag())
}

// readable returns an error if a value that is YAML would not be one value of a file.
func (o settingFlags) readable() error {
	for _, s := range o.of {
		var value any
		if s.Form != setting.Raw {
			continue
		}
		if text := *o.texts[s]; yaml.Unmarshal([]byte(text), &value) != nil || strings.Contains(text, "\n") {
			return fmt.Errorf("--%s: %q cannot be read: write it like %s", s.Flag(), text, strings.Join(s.Examples, " or "))
		}
	}
	return nil
}

func (o settingFlags) write(b *strings.Builder) {
	for _, s := range o.of {
		switch s.Form {
		case setting.List:
			writeField(b, s.Field, oneOrMore(*o.lists[s]))
		case setting.Raw:
			writeField(b, s.Field, *o.texts[s])
		default:
			writeField(b, s.Field, yamlText(*o.texts[s]))
		}
	}
}

func writeField(b *strings.Builder, field, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s: %s\n", field, value)
	}
}

func newServersCommand() *cobra.Command {
	o := newObject{kind: balance.PoolKind, list: "servers"}
	c := &cobra.Command{
		Use:   newServers + " NAME SERVER...",
		Short: "Print a list of servers for several Balances",
		Long: `Print an object of kind Servers: a list of servers with a name, for the Balances of its
namespace. "nftproxy new LISTEN --servers NAME" prints a Balance with it. A SERVER is an
address with a port, or without one if Balances say the port.

The list has a health check for the Balances without one, "check: tcp" unless --check
asks for another one, or for none.

Exit code: 0 printed, 2 wrong arguments.`,
		Example: `  nftproxy new servers app 10.128.0.2 10.128.0.3 fd00::2 fd00::3 > app.yaml
  nftproxy new servers app 10.128.0.2:8443 --backup 10.128.0.9:8443 --check '{http: /healthz}'
  nftproxy new 203.0.113.10:443 --servers app:8443 > web.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("expected a name, and the servers: nftproxy new servers app 10.128.0.2 10.128.0.3")
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.namespace, "namespace", "", "`namespace` of the list and of its Balances, default if there is none")
	f.StringArrayVar(&o.backups, "backup", nil, "`address` of a server that stands by while another one is usable; can be given several times")
	o.settings = addSettings(f, []*setting.Setting{setting.Check})
	o.settings.allowNoCheck(f, "tcp,")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.name, o.servers = args[0], args[1:]
		return o.print(c)
	}
	return c
}

func newDefaultsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   newDefaults,
		Short: "Print settings that the Balances of a directory share",
		Long: `Print an object of kind Defaults: settings for the Balances in all files of its
directory. A setting that a Balance has itself replaces the default as a whole.

Exit code: 0 printed, 2 wrong arguments.`,
		Example: `  nftproxy new defaults --check tcp --scheduler source-hash > defaults.yaml
  nftproxy new defaults --check '{http: /healthz, interval: 5s}' --slow-start 30s --on-failure close`,
		Args: cli.NoArguments,
	}
	settings := addSettings(c.Flags(), slices.DeleteFunc(setting.Flags(), func(s *setting.Setting) bool { return !balance.HasDefault(s.Field) }))
	c.RunE = func(c *cobra.Command, _ []string) error {
		o := newObject{kind: balance.DefaultsKind, settings: settings}
		if o.text() == (&newObject{kind: o.kind}).text() {
			return errors.New("expected a setting: nftproxy new defaults --check tcp")
		}
		return o.print(c)
	}
	return c
}
