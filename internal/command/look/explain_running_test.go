package look

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/words"
)

// TestNotesOfOthers: 11.27. What is noted with the names of other programs stays as it is.
func TestNotesOfOthers(t *testing.T) {
	const note = "chain endpoints of table inet node drops forwarded connections"
	r := &explain.Result{Notes: []string{note}}
	addDescription(r, &api.Description{Balance: true})
	if r.Words != words.Balance || r.Notes[0] != note {
		t.Errorf("%q, in the words %q", r.Notes, r.Words)
	}
}
