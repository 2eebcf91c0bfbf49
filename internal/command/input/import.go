package input

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/hostsfile"
	"github.com/nftproxy/nftproxy/internal/source/importer"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

type importOptions struct {
	format    string
	addresses []string
}

func ImportCommand() *cobra.Command {
	var o importOptions
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Turn a configuration of HAProxy, keepalived or IPVS into Balances",
		Long: `Print the configuration of another load balancer as Balances, a file for
"nftproxy run -f". FILE, or - for standard input, is a haproxy.cfg with sections of
mode tcp, a keepalived.conf with virtual servers, or the output of "ipvsadm -S -n".

Each word of FILE is used or named. A line without an equivalent is a comment of the
Balance, with its number and what nftproxy does instead; "Differs" is before what
changes connections or checks. A section is a comment as a whole, "Not used" with the
reason, if its Balance would serve more clients, spread connections over other servers
or check less, or if it has mode http or ends TLS. The others are valid: read the
comments, then plan with "nftproxy diff -f FILE".

Names of servers that the hosts file of this machine has become its addresses.

Exit code: 0 printed; 1 printed, and a section is only a comment; 2 error.`,
		Example: `  nftproxy import /etc/haproxy/haproxy.cfg > balances.yaml
  nftproxy import /etc/haproxy/haproxy.cfg --address 203.0.113.10
  nftproxy import /etc/keepalived/keepalived.conf > balances.yaml
  ipvsadm -S -n | nftproxy import - > balances.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("expected one file, or - for standard input: nftproxy import /etc/haproxy/haproxy.cfg")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&o.format, "format", "", "`format` of FILE: "+strings.Join(importer.Formats, ", ")+"; by default recognized")
	f.StringSliceVar(&o.addresses, "address", nil, "`addresses` that stand for all addresses of this machine, in a bind line without one")
	declare.Values(f, "format", importer.Formats...)
	return c
}

func (o *importOptions) run(c *cobra.Command, name string) error {
	options := importer.Options{Format: o.format}
	for _, text := range o.addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.IsUnspecified() || a.Zone() != "" {
			return fmt.Errorf("--address: %q is no address that clients use: write one, like 203.0.113.10", text)
		}
		options.Addresses = append(options.Addresses, a)
	}
	options.Hosts = hostsfile.Read(hostsfile.Path)
	text, err := configuration(name, c.InOrStdin())
	if err != nil {
		return err
	}
	config, err := importer.Parse(text, options)
	if err != nil {
		return fmt.Errorf("%s: %w", inputName(name), err)
	}
	out, err := config.Text(inputName(name))
	if err != nil {
		return fmt.Errorf("%s: %w", inputName(name), err)
	}
	if _, err := io.WriteString(c.OutOrStdout(), out); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return o.report(c.ErrOrStderr(), config)
}

// report says on how much a reader has to look.
func (o *importOptions) report(w io.Writer, config *importer.Config) error {
	comments, lines, differ := 0, 0, 0
	count := func(notes []importer.Note) {
		for _, n := range notes {
			if n.Why != "" {
				lines++
			}
			if n.Differs {
				differ++
			}
		}
	}
	count(config.Notes)
	for _, b := range config.Balances {
		count(b.Notes)
		if b.Problem != "" {
			comments++
		}
	}
	fmt.Fprintf(w, "%s, %s in comments, %d of them about what differs\n", terminal.Count(len(config.Balances)-comments, "Balance"), terminal.Count(lines, "remark"), differ)
	if comments == 0 {
		return nil
	}
	listed := 0
	for _, b := range config.Balances {
		if b.Problem != "" && listed < maxListed {
			listed++
			fmt.Fprintf(w, "not used: %s: %s\n", terminal.Printable(b.Origin), terminal.Printable(b.Problem))
		}
	}
	return cli.ErrNo
}

// maxListed limits the sections that are listed beside the output, which has them all.
const maxListed = 20

func inputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// configuration reads a file, or standard input, of the size that files may have.
func configuration(name string, stdin io.Reader) (string, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(filepath.Clean(name))
		if err != nil {
			return "", err
		}
		defer f.Close() // nothing was written
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, budget.FileSize+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", inputName(name), err)
	case len(text) > budget.FileSize:
		return "", fmt.Errorf("%s has more than %d MiB", inputName(name), budget.FileSize>>20)
	case slices.Contains(text, 0):
		return "", fmt.Errorf("%s is no text: it has a NUL", inputName(name))
	}
	return string(text), nil
}
