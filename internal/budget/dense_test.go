package budget

import (
	"strings"
	"testing"
)

// TestIsDense: documents of small values are dense; texts do not count.
func TestIsDense(t *testing.T) {
	many := func(text string) string { return "[" + strings.Repeat(text+",", 1<<20) + "0]" }
	for _, c := range []struct {
		document           string
		structures, values bool
	}{
		{many(`{}`), true, true}, {many(`[]`), true, true}, {many(`null`), true, false}, {many(`0`), false, true}, {many(`""`), false, true},
		{many(`"{{{{,,,,nullnull"`), false, false}, {many(`"\"{{{{,,,,[[[["`), false, false}, {many(`{"object":"Service shop/web"}`), false, false},
		{"{}", false, false}, {"[" + strings.Repeat("{},", 1000) + "{}]", false, false},
	} {
		if structures, values := IsDense([]byte(c.document)); structures != c.structures || values != c.values {
			t.Errorf("%.40s: %v, %v", c.document, structures, values)
		}
	}
}
