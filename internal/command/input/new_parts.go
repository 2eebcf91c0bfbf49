package input

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/balance"
)

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
