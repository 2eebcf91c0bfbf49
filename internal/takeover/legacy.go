package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// legacy removes chains from the tables of old iptables, which have nothing to
// do with nf_tables. The kernel takes only whole tables, in a form that the
// iptables commands know, so these are needed.
func (r *report) legacy(ctx context.Context, s system, f family) {
	const what = "chains of kube-proxy from %s of %stables-legacy"
	tables, err := s.legacyTables(f)
	r.left(err, what, "the tables", f.name)
	if len(tables) == 0 {
		return
	}
	save, err := legacyCommand(f, "save")
	if err != nil {
		r.left(err, what, strings.Join(tables, ", "), f.name)
		return
	}
	restore, err := legacyCommand(f, "restore")
	if err != nil {
		r.left(err, what, strings.Join(tables, ", "), f.name)
		return
	}
	for _, t := range tables {
		removed, err := removeLegacy(ctx, save, restore, t)
		if !removed.empty() {
			r.gone("%s in table %s of %stables-legacy", removed, t, f.name)
		}
		r.left(err, what, t, f.name)
	}
}

// legacyTables returns the tables that have chains of kube-proxy.
func (s system) legacyTables(f family) ([]string, error) {
	// Tables that nobody has used are not there, and asking for one makes it.
	names, err := os.ReadFile(filepath.Join(s.root, "proc/thread-self/net", f.name+"_tables_names"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	present := strings.Fields(string(names))
	var out []string
	var errs []error
	for _, t := range tables {
		if !slices.Contains(present, t) {
			continue
		}
		chains, err := legacyChains(f, t)
		if slices.ContainsFunc(chains, isKubeProxys) {
			out = append(out, t)
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// removeLegacy removes chains from one table, all of them or none.
func removeLegacy(ctx context.Context, save, restore, table string) (removal, error) {
	saved, err := run(exec.CommandContext(ctx, save, "-t", table))
	if err != nil {
		return removal{}, err
	}
	remove, err := plan(parseSaved(saved))
	if err != nil || remove.empty() {
		return remove, errors.Join(err, remove.keptError())
	}
	cmd := exec.CommandContext(ctx, restore, "--noflush", "--wait", "5")
	cmd.Stdin = strings.NewReader(remove.script(table))
	if _, err := run(cmd); err != nil {
		return removal{}, err
	}
	return remove, remove.keptError()
}

// legacyCommand finds one of the commands of old iptables.
func legacyCommand(f family, verb string) (string, error) {
	name := f.name + "tables-legacy-" + verb
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the command %s is not in PATH: run \"kube-proxy --cleanup\" from the image of kube-proxy", name)
	}
	return path, nil
}

// run runs a command and returns its output; what it complains of is in the
// error.
func run(cmd *exec.Cmd) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// jump matches a rule that iptables-save prints: it goes to another chain if
// that is the last thing in it. A comment would end with a quote.
var jump = regexp.MustCompile(`^-A (\S+) .*-[jg] (\S+)$`)

// parseSaved reads what iptables-save prints of one table.
func parseSaved(saved string) []chain {
	var out []chain
	rules := make(map[string][]rule)
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		if declared, ok := strings.CutPrefix(line, ":"); ok {
			name, rest, _ := strings.Cut(declared, " ")
			out = append(out, chain{
				name: name, base: !strings.HasPrefix(rest, "-"), // it has a policy
				rules: func() ([]rule, error) { return rules[name], nil },
			})
		}
		if m := jump.FindStringSubmatch(line); m != nil {
			rules[m[1]] = append(rules[m[1]], rule{chain: m[1], to: m[2], spec: line})
		}
	}
	return out
}

// script returns what iptables-restore needs to hear.
func (r removal) script(table string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", table)
	for _, rule := range r.rules {
		fmt.Fprintf(&b, "-D%s\n", strings.TrimPrefix(rule.spec, "-A"))
	}
	for _, c := range r.chains {
		fmt.Fprintf(&b, "-F %s\n", c)
	}
	for _, c := range r.chains {
		fmt.Fprintf(&b, "-X %s\n", c)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}
