package api

import (
	"strings"
	"testing"
)

func TestMatchesText(t *testing.T) {
	for _, c := range []struct {
		pattern, yes, no string
	}{
		{"web", "web", " webb xweb we"},
		{"*", " web shop/web", ""},
		{"web*", "web webb web-1", "xweb we"},
		{"*web", "web xweb", "webb"},
		{"shop/*", "shop/web shop/", "shop workshop/web"},
		{"*/web-*-db", "shop/web-1-db a/web--db", "shop/web-db shop/web-1-dbx web-1-db"},
		{"a*a", "aa aba aaa", "a ab"},
		{"a*b*c", "abc axbxc abbcc", "acb ab axb"},
		{"**", "a ab", ""},
	} {
		for _, text := range strings.Split(c.yes, " ") {
			if !matchesText(c.pattern, text) {
				t.Errorf("%q does not match %q", c.pattern, text)
			}
		}
		for _, text := range strings.Fields(c.no) {
			if matchesText(c.pattern, text) {
				t.Errorf("%q matches %q", c.pattern, text)
			}
		}
	}
}
