package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/bundle"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// bundleOptions are the flags of both commands that make an archive.
type bundleOptions struct {
	file      string
	node, all int // MiB
}

func (o *bundleOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.file, "file", "", "`file` to write; \"-\": standard output (default: nftproxy-bundle-TIME.tar.gz in this directory)")
	f.IntVar(&o.node, "max-node-size", bundle.DefaultLimits.Group>>20, "`MiB` of the files of one node before compression")
	f.IntVar(&o.all, "max-size", bundle.DefaultLimits.Whole>>20, "`MiB` of all files before compression")
	_ = c.MarkFlagFilename("file") // fails only for an unknown flag
}

// check returns an error for values that cannot be.
func (o *bundleOptions) check() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{{"max-node-size", o.node}, {"max-size", o.all}} {
		if f.value < 1 || f.value > 1<<20 {
			errs = append(errs, fmt.Errorf("--%s: %d MiB: use 1 to %d", f.name, f.value, 1<<20))
		}
	}
	return errors.Join(errs...)
}

// write makes the archive, which fill fills, and reports it.
func (o *bundleOptions) write(c *cobra.Command, about string, fill func(*bundle.Archive) error) (err error) {
	now := time.Now()
	if o.file == "" {
		o.file = "nftproxy-bundle-" + now.Format("20060102-150405") + ".tar.gz"
	}
	out, size := c.OutOrStdout(), func() int64 { return 0 }
	if o.file != "-" {
		f, failed := os.OpenFile(o.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // not readable for others
		switch {
		case errors.Is(failed, fs.ErrExist):
			return fmt.Errorf("write archive: %w: remove it, or name another file with --file", failed)
		case failed != nil:
			return fmt.Errorf("write archive: %w", failed)
		}
		defer func() {
			if err != nil {
				_ = os.Remove(o.file)
			}
		}()
		defer f.Close()
		out = f
		size = func() int64 {
			at, _ := f.Seek(0, io.SeekCurrent)
			return at
		}
	}
	limits := bundle.Limits{File: min(bundle.DefaultLimits.File, o.node<<20), Group: o.node << 20, Whole: o.all << 20}
	root := "nftproxy-bundle-" + now.Format("20060102-150405")
	a := bundle.New(out, root, fmt.Sprintf("%s\nMade by nftproxy %s at %s.\n", about, version, now.UTC().Format(time.RFC3339)), limits)
	err = fill(a)
	meterOf(c).Stop()
	if err = errors.Join(err, a.Close()); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if o.file != "-" {
		fmt.Fprintf(c.OutOrStdout(), "%s: %.1f MB; %d files cut, %d missing: see contents.txt in it\n", o.file, float64(size())/1e6, a.Cut, a.Missing)
	}
	return nil
}

// agentPages are the documents of a node. Several depend on options of the daemon.
var agentPages = []struct{ path, file string }{
	{api.BasisPath, "basis.json"},
	{api.LivePath, "live.json"},
	{api.ComparePath, "compare.json"},
	{api.ObservePath, "observe.json"},
	{api.DrainPath, "drain.json"},
	{"/configz", "configz.json"},
	{"/flagz", "flagz.txt"},
	{"/statusz", "statusz.txt"},
	{"/metrics", "metrics.txt"},
	{api.RulesPath, "rules.txt"},
}

// maxDescribed is how many Services with problems are described for each node.
const maxDescribed = 20

// collected holds the answers of a node.
type collected struct {
	Files []collectedFile
	// Services are those with problems.
	Services []bundle.Subject
}

type collectedFile struct {
	name    string
	content []byte
	err     error
}

// collect asks a daemon for its documents. Without a status it returns the error, and asks for
// nothing else.
func collect(ctx context.Context, client *api.Client) (*collected, error) {
	var out collected
	page := func(path, file string) []byte {
		content, err := client.Page(ctx, path)
		out.Files = append(out.Files, collectedFile{file, content, err})
		return content
	}
	content, err := client.Page(ctx, api.StatusPath)
	if err != nil {
		return nil, err
	}
	out.Files = append(out.Files, collectedFile{"status.json", content, nil})
	var status api.Status
	if err := client.Decode(content, &status); err == nil {
		out.Services = troubled(&status)
	}
	for _, p := range agentPages {
		page(p.path, p.file)
	}
	for i, s := range out.Services {
		if i == maxDescribed {
			break
		}
		page(api.DescribePath+"?"+url.Values{"service": {s.Path()}}.Encode(), "describe/"+s.Path()+".json")
	}
	return &out, nil
}

// troubled returns the Services that have problems.
func troubled(s *api.Status) (out []bundle.Subject) {
	seen := make(map[bundle.Subject]bool)
	for _, p := range s.Problems {
		if n, ok := bundle.NewSubject(model.Object(p.Object)); ok && !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// add adds what a node has answered.
func (n *collected) add(a *bundle.Archive, group string) {
	for _, f := range n.Files {
		if f.err != nil {
			a.Lack(group, f.name, f.err)
			continue
		}
		a.Add(group, f.name, f.content, bundle.Head)
	}
}

type machineBundleOptions struct {
	bundleOptions
	daemon daemonFinder
}

func bundleCommand() *cobra.Command {
	var o machineBundleOptions
	c := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what a support case needs in one file",
		Long: `Write one archive (tar.gz) about nftproxy on this machine: its status and other
documents, Services and Balances with problems, metrics, settings, the rules, the log,
what "nftproxy check" says, and facts of the kernel. "nftproxy cluster bundle" does so
for all nodes of a cluster.

Passwords, keys and tokens are removed from every file. Addresses and names stay, and so
does free text, such as descriptions of Services and messages of health checks: read the
archive before you send it.

The size is limited. contents.txt in the archive lists its files, which of them are cut,
and which are missing, with the reason.

Exit code: 0 written, also if files are missing; 2 error.`,
		Example: `  nftproxy bundle
  nftproxy bundle --file case-17.tar.gz`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.addFlags(c)
	o.daemon.addAddress(c.Flags())
	o.daemon.addConfig(c)
	return c
}

// machineGroup is the directory of the archive about this machine.
const machineGroup = "machine"

func (o *machineBundleOptions) run(c *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	return o.write(c, "About nftproxy on one machine.", func(a *bundle.Archive) error {
		meterOf(c).Start(func() string { return "asking the running nftproxy" })
		var got *collected
		err := o.daemon.ask(func(client *api.Client) (err error) {
			got, err = collect(c.Context(), client)
			return err
		})
		if err != nil && !errors.Is(err, api.ErrNoDaemon) {
			return err
		}
		if got == nil {
			a.Lack(machineGroup, "status.json", err)
			o.addRules(a)
		} else {
			got.add(a, machineGroup)
		}
		meterOf(c).Start(func() string { return "looking at the machine" })
		addCheck(c, a)
		addFacts(c.Context(), a)
		return nil
	})
}

// addRules adds the rules of the kernel where no daemon answers.
func (o *machineBundleOptions) addRules(a *bundle.Archive) {
	var text bytes.Buffer
	err := withKernel(func(conn *kernel.Conn) error {
		rules, _, err := conn.Read()
		if err != nil {
			return err
		}
		return rules.Text(&text)
	})
	if err != nil {
		a.Lack(machineGroup, "rules.txt", err)
		return
	}
	a.Add(machineGroup, "rules.txt", text.Bytes(), bundle.Head)
}

// addCheck adds what "nftproxy check" says.
func addCheck(c *cobra.Command, a *bundle.Archive) {
	var text, log bytes.Buffer
	check := checkCommand()
	check.SetArgs([]string{"--output", "json"})
	check.SetOut(&text)
	check.SetErr(&log)
	check.SilenceUsage, check.SilenceErrors = true, true
	if err := check.ExecuteContext(c.Context()); err != nil && !errors.Is(err, cli.ErrNo) {
		a.Lack(machineGroup, "check.json", fmt.Errorf("%w %s", err, terminal.Printable(log.String())))
		return
	}
	a.Add(machineGroup, "check.json", text.Bytes(), bundle.Head)
}
