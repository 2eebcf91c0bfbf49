package common

import (
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
)

// Bundle are the flags of all commands that make an archive.
type Bundle struct {
	File     string
	NodeSize int // MiB
	all      int // MiB
}

// AddFlags adds the flags, and the check of their values.
func (o *Bundle) AddFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.File, "file", "", "`file` to write; \"-\": standard output (default: nftproxy-bundle-TIME.tar.gz in this directory)")
	f.IntVar(&o.NodeSize, "max-node-size", bundle.DefaultLimits.Group>>20, "`MiB` of the files of one node before compression")
	f.IntVar(&o.all, "max-size", bundle.DefaultLimits.Whole>>20, "`MiB` of all files before compression")
	cli.AddCheck(c, func(*cobra.Command, []string) error {
		return errors.Join(checkSize("max-node-size", o.NodeSize), checkSize("max-size", o.all))
	})
}

func checkSize(flag string, size int) error {
	if size < 1 || size > 1<<20 {
		return fmt.Errorf("--%s: %d MiB: use 1 to %d", flag, size, 1<<20)
	}
	return nil
}

// Write makes the archive, which fill fills, and reports it.
func (o *Bundle) Write(c *cobra.Command, version, about string, fill func(*bundle.Archive) error) (err error) {
	now := time.Now()
	if o.File == "" {
		o.File = "nftproxy-bundle-" + now.Format("20060102-150405") + ".tar.gz"
	}
	out, size := c.OutOrStdout(), func() int64 { return 0 }
	if o.File != "-" {
		f, failed := os.OpenFile(o.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // not readable for others
		switch {
		case errors.Is(failed, fs.ErrExist):
			return fmt.Errorf("write archive: %w: remove it, or name another file with --file", failed)
		case failed != nil:
			return fmt.Errorf("write archive: %w", failed)
		}
		defer func() {
			if err != nil {
				_ = os.Remove(o.File)
			}
		}()
		defer f.Close()
		out = f
		size = func() int64 {
			at, _ := f.Seek(0, io.SeekCurrent)
			return at
		}
	}
	limits := bundle.Limits{File: min(bundle.DefaultLimits.File, o.NodeSize<<20), Group: o.NodeSize << 20, Whole: o.all << 20}
	root := "nftproxy-bundle-" + now.Format("20060102-150405")
	a := bundle.New(out, root, fmt.Sprintf("%s\nMade by nftproxy %s at %s.\n", about, version, now.UTC().Format(time.RFC3339)), limits)
	err = fill(a)
	cli.MeterOf(c).Stop()
	if err = errors.Join(err, a.Close()); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if o.File != "-" {
		fmt.Fprintf(c.OutOrStdout(), "%s: %.1f MB; %d files cut, %d missing: see contents.txt in it\n", o.File, float64(size())/1e6, a.Cut, a.Missing)
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

// LogLines is how many of the last lines of a log are in an archive.
const LogLines = "20000"

// maxDescribed is how many Services with problems are described for each node.
const maxDescribed = 20

// Collected holds the answers of a node.
type Collected struct {
	Files []page
	// Services are those with problems.
	Services []bundle.Subject
}

type page struct {
	name    string
	content []byte
	err     error
}

// Collect asks a daemon for its documents. Without a status it returns the error, and asks for
// nothing else.
func Collect(ctx context.Context, client *api.Client) (*Collected, error) {
	var out Collected
	ask := func(path, file string) {
		content, err := client.Page(ctx, path)
		out.Files = append(out.Files, page{file, content, err})
	}
	content, err := client.Page(ctx, api.StatusPath)
	if err != nil {
		return nil, err
	}
	out.Files = append(out.Files, page{"status.json", content, nil})
	var status api.Status
	if err := client.Decode(content, &status); err == nil {
		out.Services = Troubled(&status)
	}
	for _, p := range agentPages {
		ask(p.path, p.file)
	}
	for i, s := range out.Services {
		if i == maxDescribed {
			break
		}
		ask(api.DescribePath+"?"+url.Values{"service": {s.Path()}}.Encode(), "describe/"+s.Path()+".json")
	}
	return &out, nil
}

// Troubled returns the Services that have problems.
func Troubled(s *api.Status) (out []bundle.Subject) {
	seen := make(map[bundle.Subject]bool)
	for _, p := range s.Problems {
		if n, ok := bundle.NewSubject(p.Object); ok && !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// Add adds what a node has answered.
func (n *Collected) Add(a *bundle.Archive, group string) {
	for _, f := range n.Files {
		a.Add(group, f.name, f.content, f.err)
	}
}
