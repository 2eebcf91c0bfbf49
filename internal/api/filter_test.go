package api

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// named returns a name whose text is the text, or only the name in a namespace.
func named(text string) model.ServiceName {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return model.ServiceName{Namespace: namespace, Name: name}
	}
	return model.ServiceName{Namespace: "default", Name: text}
}

func TestMatchesName(t *testing.T) {
	for _, c := range []struct {
		pattern, yes, no string
	}{
		{"web", "web", " webb xweb we"},
		{"*", " web", ""},
		{"web*", "web webb web-1", "xweb we"},
		{"*web", "web xweb", "webb"},
		{"shop/*", "shop/web shop/", "shop workshop/web"},
		{"*/web-*-db", "shop/web-1-db a/web--db", "shop/web-db shop/web-1-dbx"},
		{"a*a", "aa aba aaa", "a ab"},
		{"a*b*c", "abc axbxc abbcc", "acb ab axb"},
		{"**", "a ab", ""},
	} {
		for _, text := range strings.Split(c.yes, " ") {
			if !matchesName(c.pattern, named(text)) {
				t.Errorf("%q does not match %q", c.pattern, text)
			}
		}
		for _, text := range strings.Fields(c.no) {
			if matchesName(c.pattern, named(text)) {
				t.Errorf("%q matches %q", c.pattern, text)
			}
		}
	}
}
