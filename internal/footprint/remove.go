// Package footprint lists what nftproxy leaves on a machine outside of its tables: how each kind is marked,
// what restores it, and what removes it. "nftproxy cleanup" walks the list, which docs/footprint.md prints.
package footprint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/control"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nftconn"
	"github.com/nftproxy/nftproxy/internal/xtables"
)

// openRecord returns the record; nil: there is none, or it cannot be read.
func openRecord(s feature.Scope) (*Record, error) {
	if _, err := os.Lstat(filepath.Join(s.Runtime, leftFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := Open(s.Runtime, s.Log)
	if err := r.read(); err != nil {
		return nil, err
	}
	return r, nil
}

// restoreConntrack gives settings of connection tracking the values from before nftproxy, unless another program
// translates: a kube-proxy that is back finds its values and does not set them.
func restoreConntrack(s feature.Scope) ([]string, error) {
	return restoreSettings(s, func(c host.Change) (ours bool, needs string, err error) {
		if _, forwarding := host.ForwardingOf(c); forwarding {
			return false, "", nil
		}
		for _, f := range model.Families {
			if needs == "" && err == nil {
				needs, err = findForwarding(f)
			}
		}
		return true, needs, err
	})
}

// restoreForwarding turns off the forwarding that nftproxy turned on, unless another program may need it by now.
func restoreForwarding(s feature.Scope) ([]string, error) {
	return restoreSettings(s, func(c host.Change) (ours bool, needs string, err error) {
		f, forwarding := host.ForwardingOf(c)
		if forwarding {
			needs, err = findForwarding(f)
		}
		return forwarding, needs, err
	})
}

// restoreSettings restores the settings that are ours, the last changed one first. One that another program needs stays.
func restoreSettings(s feature.Scope, ours func(host.Change) (is bool, needs string, err error)) (restored []string, err error) {
	r, err := openRecord(s)
	if r == nil {
		return nil, err
	}
	var rest []host.Change
	for _, c := range slices.Backward(r.has.Settings) {
		is, needs, failure := ours(c)
		if is && failure == nil && needs == "" {
			var did bool
			if did, failure = host.System("").Restore(c); did {
				restored = append(restored, fmt.Sprintf("value %s of setting %s, which is %s again", c.To, c.Name(), c.From))
			}
		}
		if needs != "" {
			s.Log.Warn("a setting stays as nftproxy has set it: another program may need it by now", "setting", c.String(), "program", needs,
				"remedy", fmt.Sprintf("echo %s > /%s", c.From, c.File))
		}
		if !is || failure != nil {
			rest = append(rest, c)
		}
		err = errors.Join(err, failure)
	}
	if slices.Reverse(rest); len(rest) < len(r.has.Settings) {
		r.editRecord(func(l *left) { l.Settings = rest })
	}
	return restored, err
}

// findForwarding returns what another program has that forwarded packets of a family pass; empty: nothing.
func findForwarding(f model.Family) (string, error) {
	legacy, err := xtables.Tables("/", map[model.Family]xtables.Family{model.IPv4: xtables.IPv4, model.IPv6: xtables.IPv6}[f])
	if err != nil || len(legacy) > 0 {
		return "tables of iptables-legacy: " + strings.Join(legacy, ", "), err
	}
	conn, err := nftconn.Open()
	if err != nil {
		return "", err
	}
	chains, err := conn.ListChains()
	if err != nil {
		return "", fmt.Errorf("list chains: %w", err)
	}
	family := map[model.Family]nftables.TableFamily{model.IPv4: nftables.TableFamilyIPv4, model.IPv6: nftables.TableFamilyIPv6}[f]
	for _, c := range chains {
		if c.Hooknum == nil || c.Table.Family != family && c.Table.Family != nftables.TableFamilyINet ||
			c.Type != nftables.ChainTypeNAT && *c.Hooknum != *nftables.ChainHookForward {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return "", fmt.Errorf("list rules of chain %s: %w", c.Name, err)
		}
		if len(rules) > 0 {
			return fmt.Sprintf("chain %s of table %s", c.Name, c.Table.Name), nil
		}
	}
	return "", nil
}

// removeRecord removes the file that is about rules which are gone.
func removeRecord(s feature.Scope) ([]string, error) { return feature.RemoveFile(s.Runtime, RulesFile) }

// removeSockets removes the sockets of processes that were killed.
func removeSockets(s feature.Scope) ([]string, error) {
	own := []string{filepath.Join(s.Runtime, control.Name), control.DefaultPath()}
	removed := control.RemoveEnded(s.Runtime, own...)
	if s.Runtime != control.DefaultDirectory {
		removed = append(removed, control.RemoveEnded(control.DefaultDirectory, own...)...)
	}
	return removed, nil
}

// removeDirectory removes the runtime directory if nothing is in it but what killed processes had begun to write.
func removeDirectory(s feature.Scope) ([]string, error) {
	err := atomicfile.RemoveDrafts(s.Runtime)
	_ = os.Remove(s.Runtime) // a daemon of another network namespace may have files there
	return nil, err
}

// Remove removes all kinds that "nftproxy cleanup" removes, and continues after a failure. The directory is the runtime directory of
// the daemon.
func Remove(directory string, log *slog.Logger) (removed []string, err error) {
	s := feature.Scope{Runtime: directory, Log: log}
	s.HealthDirectory = func() (string, func(), error) {
		r, err := openRecord(s)
		if r == nil {
			return "", nil, err
		}
		return r.has.HealthDirectory, func() { r.HealthDirectory("") }, nil
	}
	for _, k := range Kinds {
		if k.Remove == nil {
			continue
		}
		some, failure := k.Remove(s)
		removed, err = append(removed, some...), errors.Join(err, failure)
	}
	return removed, err
}
