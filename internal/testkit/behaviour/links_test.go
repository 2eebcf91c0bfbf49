package behaviour

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeBlock   = regexp.MustCompile("(?ms)^```.*?^```")
	heading     = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	section     = regexp.MustCompile(`(?m)^## (.+)$`)
	explicit    = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText    = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	makeCommand = regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)(?:[ `]|$)")
	punctuation = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// slug returns the anchor that GitHub gives a heading.
func slug(title string) string {
	title = linkText.ReplaceAllString(strings.ToLower(title), "$1")
	return strings.ReplaceAll(punctuation.ReplaceAllString(title, ""), " ", "-")
}

// readPages returns the Markdown pages of the repository by path, without
// their code blocks.
func readPages(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		pages[path] = codeBlock.ReplaceAllString(string(text), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// anchors returns where links into a page can lead.
func anchors(page string) map[string]bool {
	out := make(map[string]bool)
	for _, m := range explicit.FindAllStringSubmatch(page, -1) {
		out[m[1]] = true
	}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		name := slug(m[1])
		for i := 1; out[name]; i++ {
			name = fmt.Sprintf("%s-%d", slug(m[1]), i)
		}
		out[name] = true
	}
	return out
}

// TestLinks proves that every relative link between pages leads to a file, and
// to an anchor if it names one.
func TestLinks(t *testing.T) {
	pages := readPages(t)
	headings := make(map[string]map[string]bool, len(pages))
	for path, page := range pages {
		headings[path] = anchors(page)
	}
	links := 0
	for path, page := range pages {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, hasAnchor := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			} else if hasAnchor && !headings[target][anchor] {
				t.Errorf("%s: link to %s: %s has no such anchor", path, m[1], target)
			}
		}
	}
	if links < 50 {
		t.Errorf("the pages have only %d relative links", links)
	}
}

// TestMakeTargets proves that every target of make that a page names exists.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for path := range readPages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range makeCommand.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+": ") {
				t.Errorf("%s: make %s: there is no such target", path, m[1])
			}
		}
	}
}

// TestContents proves that the contents of a long page list all its sections.
func TestContents(t *testing.T) {
	for path, page := range readPages(t) {
		sections := section.FindAllStringSubmatch(page, -1)
		short := len(sections) < 5 && strings.Count(page, "\n") < 100 || path == filepath.Join(root, "docs/README.md")
		if short || filepath.Dir(path) != filepath.Join(root, "docs") {
			continue
		}
		for _, m := range sections {
			if !strings.Contains(page, "](#"+slug(m[1])+")") {
				t.Errorf("%s: the contents lack a link to %q", path, m[1])
			}
		}
	}
}

func TestSlug(t *testing.T) {
	for title, want := range map[string]string{
		"13. Syncs":                            "13-syncs",
		"Sets, maps and `nft`'s [notes](x.md)": "sets-maps-and-nfts-notes",
		"If the API server, or the log, fails": "if-the-api-server-or-the-log-fails",
	} {
		if got := slug(title); got != want {
			t.Errorf("slug of %q: %q, want %q", title, got, want)
		}
	}
}

// TestQuestions proves that the index answers questions, each by a link, and that the README leads to it: so an answer
// is two clicks away.
func TestQuestions(t *testing.T) {
	pages := readPages(t)
	if !strings.Contains(pages[filepath.Join(root, "README.md")], "](docs/README.md)") {
		t.Error("README.md does not lead to docs/README.md")
	}
	questions := regexp.MustCompile(`(?m)^\| (.+\?) \| (.+) \|$`).FindAllStringSubmatch(pages[filepath.Join(root, "docs/README.md")], -1)
	if len(questions) < 60 {
		t.Errorf("the index answers %d questions, want 60", len(questions))
	}
	for _, m := range questions {
		if !strings.Contains(m[2], "](") {
			t.Errorf("no link answers %q", m[1])
		}
	}
}

// TestIndex proves that docs/README.md lists every page, and every picture is shown.
func TestIndex(t *testing.T) {
	pages := readPages(t)
	index := pages[filepath.Join(root, "docs/README.md")]
	all := ""
	for path, page := range pages {
		all += page
		if dir, name := filepath.Split(path); filepath.Clean(dir) == filepath.Join(root, "docs") && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
	images, err := filepath.Glob(filepath.Join(root, "docs/images/*"))
	if err != nil || len(images) == 0 {
		t.Fatal(images, err)
	}
	for _, image := range images {
		if !strings.Contains(all, "images/"+filepath.Base(image)+")") {
			t.Errorf("no page shows %s", image)
		}
	}
}
