package show

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// TestCheckedText: 3.34, the column of health checks.
func TestCheckedText(t *testing.T) {
	now := time.Now()
	for want, c := range map[string]*api.Checked{
		"":                          nil,
		"fails":                     {Since: now, Message: "refused"},
		"passes":                    {Healthy: true, Since: now},
		"passes (last: refused)":    {Healthy: true, Since: now, Message: "refused"},
		"not checked yet":           {Healthy: true},
		"not checked: it is a loop": {Healthy: true, Since: now, Message: model.NotChecked + "it is a loop"},
	} {
		if got := checkedText(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
