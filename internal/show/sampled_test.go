package show

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
)

// TestSampledText: 17.15.
func TestSampledText(t *testing.T) {
	for want, s := range map[string]*api.Sampled{
		"":                                {Answered: 9},
		"2 of 9 refused":                  {Answered: 7, Refused: 2},
		"9 of 9 unanswered":               {Unanswered: 9},
		"1 refused and 2 unanswered of 9": {Answered: 6, Refused: 1, Unanswered: 2},
	} {
		if got := sampledText(s); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
	if got := sampledText(nil); got != "" {
		t.Errorf("without samples: %q", got)
	}
}
