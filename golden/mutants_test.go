package golden

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	inject "github.com/nftproxy/nftproxy/internal/testkit/mutate"
	"github.com/nftproxy/nftproxy/internal/testkit/proof"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

var (
	mutants    = flag.Int("mutants", 0, "number of mutants that the proof has to catch; 0: none")
	mutantSeed = flag.Uint64("mutant-seed", 1, "seed that draws them")
)

// mutated are the packages with mistakes, and the files that packets depend on.
var mutated = map[string]func(file string) bool{
	"render": func(file string) bool {
		return !slices.Contains([]string{"observe.go"}, file) // what is logged
	},
	"placement": func(string) bool { return true },
	"plan":      func(file string) bool { return file != "print.go" },
	"kernel/codec": func(file string) bool {
		return !strings.HasPrefix(file, "decode") && file != "typeof.go" && file != "refusal.go"
	},
}

// result is what the proof says about a mutant.
type result struct {
	Place, Kind, Source string
	// Caught is the packet that shows the mistake.
	Caught string `json:",omitempty"`
	// Stops is the first line of a panic or an error: the rules could not even be made.
	Stops string `json:",omitempty"`
	// Equivalent is why no packet can show it.
	Equivalent string `json:",omitempty"`
	// Gap is why no input of the proof shows it, although a packet could.
	Gap string `json:",omitempty"`
}

const mutantsFile = "testdata/mutants.json"

// TestMutants draws mistakes in the source, and expects the proof to catch each with a packet. A
// mutant that it does not catch has a reason in the file with the results, or fails the test. Results
// that are there stay: the test goes on where it was.
func TestMutants(t *testing.T) {
	if *mutants == 0 {
		return // make prove-mutants gives a number
	}
	p := newMutantProgram(t)
	sites := draw(p.reached(t))
	d := &drawn{known: readResults(t), program: p}
	for first := 0; first < len(sites) && d.counted < *mutants; first += atOnce {
		d.tryAll(t, sites[first:min(first+atOnce, len(sites))])
		writeResults(t, d.results)
	}
	fmt.Fprintf(t.Output(), "%d mutants of %d sites\n", d.counted, len(sites))
}

// draw sorts sites by a hash with the seed: other sites may come and go, and the draw is the same.
func draw(sites []inject.Site) []inject.Site {
	key := func(s inject.Site) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %s", *mutantSeed, s.Place, s.Kind, s.Source))
		return string(sum[:])
	}
	slices.SortFunc(sites, func(a, b inject.Site) int { return strings.Compare(key(a), key(b)) })
	return sites
}

// drawn is the results of the mutants so far.
type drawn struct {
	known, results []result // of earlier runs, and of this one
	program        *mutantProgram
	counted        int // those that do not stop
}

// atOnce is how many mutants run at the same time.
const atOnce = 8

// tryAll adds the results of some mutants, in their order.
func (d *drawn) tryAll(t *testing.T, sites []inject.Site) {
	t.Helper()
	results := make([]result, len(sites))
	var running sync.WaitGroup
	for i, s := range sites {
		at := slices.IndexFunc(d.known, func(r result) bool { return r.Place == s.Place && r.Kind == s.Kind && r.Source == s.Source })
		if at >= 0 && d.known[at].isDecided() {
			results[i] = d.known[at]
			continue
		}
		running.Go(func() { results[i] = d.program.try(t, s) })
	}
	running.Wait()
	for _, r := range results {
		if d.counted == *mutants {
			return
		}
		if d.results = append(d.results, r); r.Stops == "" {
			d.counted++
		}
		if !r.isDecided() {
			t.Errorf("%s: %s, %s: no packet shows it", r.Place, r.Kind, r.Source)
		}
	}
}

func (r *result) isDecided() bool { return r.Caught+r.Stops+r.Equivalent+r.Gap != "" }

func readResults(t *testing.T) (out []result) {
	t.Helper()
	data, err := os.ReadFile(mutantsFile)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

func writeResults(t *testing.T, all []result) {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := errors.Join(e.Encode(all), os.MkdirAll(filepath.Dir(mutantsFile), 0o755), os.WriteFile(mutantsFile, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// mutantProgram is a program with all mutants, and its input.
type mutantProgram struct {
	dir     string
	sites   []inject.Site
	stories string
}

// newMutantProgram compiles the program, with the changed files in place of those on disk.
func newMutantProgram(t *testing.T) *mutantProgram {
	t.Helper()
	p := &mutantProgram{dir: t.TempDir()}
	overlay := map[string]map[string]string{"Replace": {}}
	for _, name := range []string{"placement", "render", "plan", "kernel/codec"} {
		pkg, err := inject.Instrument("github.com/nftproxy/nftproxy/internal/"+name, len(p.sites), mutated[name])
		if err != nil {
			t.Fatal(err)
		}
		p.sites = append(p.sites, pkg.Sites...)
		for original, text := range pkg.Files {
			changed := filepath.Join(p.dir, strings.ReplaceAll(name, "/", "-")+"-"+filepath.Base(original))
			if err := os.WriteFile(changed, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			overlay["Replace"][original] = changed
		}
	}
	data, err := json.Marshal(overlay)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, "overlay.json"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", filepath.Join(p.dir, "overlay.json"), "-o", p.program(), "../internal/testkit/proof/catch")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.stories = filepath.Join(p.dir, "stories.json")
	data, err = json.Marshal(stories(t))
	if err == nil {
		err = os.WriteFile(p.stories, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *mutantProgram) program() string { return filepath.Join(p.dir, "catch") }

// stories returns the inputs of all cases.
func stories(t *testing.T) (all []proof.Story) {
	t.Helper()
	for _, kind := range []string{goldens, behaviours} {
		paths, err := filepath.Glob(kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			s := proof.Story{Name: path, Between: true}
			for _, phase := range read(t, path).phases {
				if phase.err == nil {
					s.Phases = append(s.Phases, phase.proof())
				}
			}
			all = append(all, s)
			s.Follows = true
			all = append(all, s)
		}
	}
	for seed := range uint64(randomStories) {
		w, s := workload.NewWorld(seed), proof.Story{Name: fmt.Sprintf("world %d", seed)}
		for range randomPhases {
			w.Step()
			s.Phases = append(s.Phases, proof.Phase{Snapshot: w.Snapshot(), Config: w.Config})
		}
		all = append(all, s)
		s.Follows = true
		all = append(all, s)
	}
	return all
}

// Random stories and their inputs.
const randomStories, randomPhases = 12, 6

// reached returns the sites that the program comes to. Without a mutant it finds nothing wrong.
func (p *mutantProgram) reached(t *testing.T) (out []inject.Site) {
	t.Helper()
	list := filepath.Join(p.dir, "reached")
	if text, err := exec.Command(p.program(), p.stories, list).CombinedOutput(); err != nil {
		t.Fatalf("without a mutant: %v\n%s", err, text)
	}
	data, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(data)) {
		n, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p.sites[n])
	}
	return out
}

// killed is the exit code of a program that a signal ends: that of its limit of processor time.
const killed = -1

// try runs the program with a mutant.
func (p *mutantProgram) try(t *testing.T, s inject.Site) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.program(), p.stories)
	cmd.Env = append(os.Environ(), fmt.Sprintf("MUTANT=%d", s.Number))
	out, err := cmd.CombinedOutput()
	first, _, _ := strings.Cut(string(out), "\n")
	r := result{Place: s.Place, Kind: s.Kind, Source: s.Source}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		r.Caught = first
	case errors.As(err, &exit) && exit.ExitCode() == killed:
		r.Stops = "it does not end"
	default:
		r.Stops = first
	}
	return r
}

const mutantsPage = "mutants.md"

// TestMutantsPage compares the page with the results.
func TestMutantsPage(t *testing.T) {
	counts, rows := make(map[string]int), make(map[string]string)
	for _, r := range readResults(t) {
		kind, text := r.outcome()
		if kind == "" {
			t.Errorf("%s: %s, %s: neither caught nor explained", r.Place, r.Kind, r.Source)
		}
		counts[kind]++
		cell := strings.NewReplacer("|", "\\|", "`", "'")
		rows[kind] += fmt.Sprintf("| %s | %s `%s` | %s |\n", cell.Replace(r.Place), r.Kind, cell.Replace(r.Source), cell.Replace(text))
	}
	page := fmt.Sprintf("# Mutants\n\nMistakes in the source, drawn by a seed, and how [the proof](../docs/proof.md#mutants) finds each; `make prove-mutants` makes the\n"+
		"results. Of %d with which rules can be made, %d are caught, %d change no packet, and %d are shown by no input of the proof. %d more\nstop the program.\n",
		counts["caught"]+counts["equivalent"]+counts["gap"], counts["caught"], counts["equivalent"], counts["gap"], counts["stops"])
	for _, part := range []struct{ title, kind, column string }{{"Caught", "caught", "packet"}, {"No packet changes", "equivalent", "why"}, {"Not shown", "gap", "why"}} {
		page += fmt.Sprintf("\n## %s\n\n| place | mistake | %s |\n|---|---|---|\n%s", part.title, part.column, rows[part.kind])
	}
	got, err := os.ReadFile(mutantsPage)
	if err == nil && string(got) == page {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date (%v): run go test ./golden -run %s -update", mutantsPage, err, t.Name())
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(mutantsPage), 0o755), os.WriteFile(mutantsPage, []byte(page), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// outcome returns the kind of a result, and what shows or explains it.
func (r *result) outcome() (kind, text string) {
	switch {
	case r.Stops != "":
		return "stops", r.Stops
	case r.Caught != "":
		return "caught", r.Caught
	case r.Equivalent != "":
		return "equivalent", r.Equivalent
	case r.Gap != "":
		return "gap", r.Gap
	}
	return "", ""
}
