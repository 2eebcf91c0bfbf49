package simulation

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var defects = flag.Bool("defects", false, "bring back defects of earlier versions, one after the other, and expect the simulation to find each")

// defect is a change of the source that brings back what was once wrong.
type defect struct {
	name     string // what goes wrong
	file     string // below internal
	old, now string
}

var known = []defect{
	{"a part of the source that cannot be read keeps all others from being followed, if settings change the structure of rules",
		"agent/partial.go", "	rules, delta := render.StartKeeping(wanted, found.Kept)\n",
		"	rules, delta := render.StartKeeping(wanted, found.Kept)\n	if p := plan.Diff(held, delta.After); a.own != nil && slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return len(c.Users) > 0 }) {\n" +
			"		return nil, nft.Delta{}, fmt.Errorf(\"Services that are not known now would lose their rules\")\n	}\n"},
	{"an address stays for ever on an interface if its Balance has gone while no process ran",
		"feature/vitals/keep.go", "if k.states[p] == nil && (is.Marked || k.record.has(p, is)) {", "if k.states[p] == nil && is.Marked && false {"},
	{"an address that another program takes off an interface does not come back",
		"feature/vitals/keep.go", "case due || s.there:\n		s.there = false\n", "case s.there:\n		s.due = time.Time{}\n	case due:\n"},
	{"an announcement that has failed is not repeated",
		"feature/vitals/keep.go", "	if !s.there || link.Up && !k.up[p.Interface] {\n", "	if s.there {\n		s.due = time.Time{}\n		return\n	}\n	if !s.there {\n"},
	{"the chain of the relay is left after the last relayed Balance",
		"render/update.go", "	case l.relays: // it goes with the chain that guards the port\n		return false\n", "	case l.relays:\n		return true\n"},
	{"optional parts of the rules stay while a part of the source cannot be read, though nothing needs them",
		"agent/partial.go", "	rules, delta := render.StartKeeping(wanted, found.Kept)\n",
		"	for _, t := range held.Tables {\n		if a.own != nil && (t.Set(nft.ObservedSet) != nil || t.Set(nft.SampledSet) != nil) {\n			wanted.Observe = model.Observe{Level: model.ObserveFailures, Group: 7}\n		}\n	}\n	rules, delta := render.StartKeeping(wanted, found.Kept)\n"},
	{"a change is forgotten if the kernel does not take it",
		"agent/agent.go", "	if s.Err != nil {\n", "	if a.pending.routes = nil; s.Err != nil {\n"},
	{"changes by other programs stay, if the message about them is lost",
		"agent/drift.go", "	d := &a.drift\n", "	d := &a.drift\n	if i.Missed {\n		return\n	}\n"},
	{"Services that have gone stay, once the part of the source is read in which they might have been",
		"agent/partial.go", "			a.own = nil\n			a.Applier.Forget()\n", "			a.own = nil\n"},
	{"a process does not know the slots of endpoints that the one before it has left",
		"apply/record.go", "		held[p.Frontend] = p.Order\n", ""},
	{"an interrupted listing of connection tracking is not repeated",
		"conntrack/cleaner.go", "err = netlinkio.Retry(netlinkio.Fades, func() error {", "err = netlinkio.Retry(func(error) bool { return false }, func() error {"},
	{"slots of endpoints that a process exchanges are not noted",
		"apply/apply.go", "		u.slots[m.Frontend] = m.Order\n", "		_ = m\n"},
}

// patience is how long the simulation may look for a defect.
const patience = 10 * time.Minute

// TestDefects brings back defects of earlier versions. The simulation must find each.
func TestDefects(t *testing.T) {
	if !*defects {
		t.Log("only with -defects: each one compiles the program")
		return
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range known {
		t.Run(d.name, func(t *testing.T) {
			program := compile(t, filepath.Join(root, filepath.FromSlash(d.file)), d)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out, err := exec.CommandContext(ctx, program, "-test.run=^TestSimulation$", "-test.v", "-test.failfast", fmt.Sprint("-seeds=", *seeds), "-shrink=false").CombinedOutput()
			found := regexp.MustCompile(`seed \d+, event \d+ of \d+: .*(?:\n {8}.*)?`).Find(out)
			if err == nil || found == nil {
				t.Fatalf("not found in %d seeds: %v\n%s", *seeds, err, out[max(0, len(out)-2000):])
			}
			fmt.Fprintf(t.Output(), "%s\n", found)
		})
	}
}

// compile returns the test program of this package with a defect.
func compile(t *testing.T, file string, d defect) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), d.old) != 1 {
		t.Fatalf("%s has %d times the text that changes", d.file, strings.Count(string(text), d.old))
	}
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{changed: []byte(strings.Replace(string(text), d.old, d.now, 1)), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
