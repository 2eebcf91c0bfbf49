package deploy_test

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const runbooks = "https://github.com/nftproxy/nftproxy/blob/main/docs/runbooks.md#"

// TestRunbooks: every alert has a runbook, with all parts, and every runbook an alert.
func TestRunbooks(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(read(t, "prometheus/alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	books := make(map[string]string)
	for _, section := range strings.Split(string(read(t, "../docs/runbooks.md")), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		books[name] = text
	}
	for _, rule := range file.Groups[0].Rules { // the other group records
		if got, want := rule.Annotations["runbook_url"], runbooks+strings.ToLower(rule.Alert); got != want {
			t.Errorf("%s has the runbook %q, want %s", rule.Alert, got, want)
		}
		for _, part := range []string{"Meaning", "Impact", "Diagnosis", "Remedy"} {
			if !strings.Contains(books[rule.Alert], "**"+part+".** ") {
				t.Errorf("the runbook of %s has no part %q", rule.Alert, part)
			}
		}
		if !strings.Contains(string(read(t, "../docs/runbooks.md")), "- ["+rule.Alert+"](#"+strings.ToLower(rule.Alert)+")\n") {
			t.Errorf("the contents lack %s", rule.Alert)
		}
		delete(books, rule.Alert)
	}
	for name := range books {
		t.Errorf("runbook %s belongs to no alert", name)
	}
}

// TestRunbookChecks: the runbook of the machine's problems has every check.
func TestRunbookChecks(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(read(t, "../docs/runbooks.md")), -1)
	listed := regexp.MustCompile("`nftproxy_machine_problems`.*?: (`.*`);").FindStringSubmatch(string(read(t, "../docs/metrics.md")))
	if listed == nil {
		t.Fatal("docs/metrics.md does not list the checks")
	}
	var names []string
	for _, r := range row {
		names = append(names, "`"+r[1]+"`")
	}
	if got := strings.Join(names, ", "); got != listed[1] {
		t.Errorf("runbook: %s, metrics: %s", got, listed[1])
	}
}
