package model_test

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestRefusals: each reason has a name that a rule can log, words and advice, once.
func TestRefusals(t *testing.T) {
	const longest = 127 // of a prefix of nft
	seen := make(map[string]bool)
	for _, r := range model.Refusals {
		if r.Name == "" || len(r.Name) > longest || strings.ContainsAny(r.Name, " \"\\_") || strings.ToLower(r.Name) != r.Name {
			t.Errorf("%q is not the name of a reason", r.Name)
		}
		for _, text := range []string{r.Name, r.Text} {
			if seen[text] {
				t.Errorf("%q is twice", text)
			}
			seen[text] = true
		}
		if r.Text == "" || r.Advice == "" || strings.HasSuffix(r.Text, ".") || strings.HasSuffix(r.Advice, ".") {
			t.Errorf("%s: text %q, advice %q", r.Name, r.Text, r.Advice)
		}
		if found := model.RefusalOf(r.Name); found == nil || found.Text != r.Text {
			t.Errorf("%s is not found", r.Name)
		}
	}
	if model.RefusalOf("Denied") != nil {
		t.Error("another name is found")
	}
}
