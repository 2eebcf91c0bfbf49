package nft_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestReasonsHaveWords: each reason has a row with words for people, in the same order.
func TestReasonsHaveWords(t *testing.T) {
	if len(model.Refusals) != len(nft.Reasons) {
		t.Fatalf("%d reasons of rules, %d for people", len(nft.Reasons), len(model.Refusals))
	}
	for i, r := range nft.Reasons {
		if w := model.Refusals[i]; w.Name != r.Name || w.Rejected != r.Rejects {
			t.Errorf("reason %q of rules, which rejects: %t; for people %q, %t", r.Name, r.Rejects, w.Name, w.Rejected)
		}
	}
}
