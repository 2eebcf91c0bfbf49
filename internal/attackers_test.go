package internal_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestAttackers: each line of the table of attackers names a test that exists, or says that
// there is no defence. An attempt that fails has a test.
func TestAttackers(t *testing.T) {
	const page = "docs/security-self-assessment.md"
	_, table, ok := strings.Cut(content(t, page), "<!-- begin attackers -->")
	table, _, ends := strings.Cut(table, "<!-- end attackers -->")
	if !ok || !ends {
		t.Fatalf("%s has no table of attackers", page)
	}
	declared := make(map[string]bool)
	for _, file := range files(t, "*_test.go") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(content(t, file), -1) {
			declared[m[1]] = true
		}
	}
	attackers := make(map[string]bool)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) < 2 || strings.HasPrefix(line, "| attacker |") {
			continue
		}
		if len(cells) != 5 {
			t.Errorf("%d cells in %s", len(cells), line)
			continue
		}
		attackers[strings.TrimSpace(cells[0])] = true
		succeeds, proof := cells[2], strings.TrimSpace(cells[4])
		if succeeds != "no" && succeeds != "in part" && succeeds != "yes" {
			t.Errorf("%q succeeds in %s", succeeds, line)
		}
		names := regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(proof, -1)
		if (len(names) == 0) != (proof == "not defended") || proof == "not defended" && succeeds == "no" {
			t.Errorf("neither a test nor \"not defended\" in %s", line)
		}
		for _, m := range names {
			if !declared[m[1]] {
				t.Errorf("there is no %s, which proves %s", m[1], line)
			}
		}
	}
	if len(attackers) < 9 {
		t.Errorf("the table has %d attackers", len(attackers))
	}
}
