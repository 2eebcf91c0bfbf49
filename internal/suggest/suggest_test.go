package suggest_test

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/suggest"
)

func TestSimilar(t *testing.T) {
	names := []string{"shop/cart", "shop/web", "shop/webb", "kube-system/kube-dns", "shop/checkout-payments"}
	for word, want := range map[string]string{
		"shop/wbe":           "shop/web shop/webb", // two letters swapped
		"shop/wep":           "shop/web shop/webb",
		"shp/cart":           "shop/cart",
		"kube-system/kubdns": "kube-system/kube-dns",
		"checkout":           "shop/checkout-payments", // a part
		"sh":                 "",                       // a part of too many
		"entirely-different": "",
		"":                   "",
	} {
		if got := strings.Join(suggest.Similar(word, names), " "); got != want {
			t.Errorf("%q is like %q, want %q", word, got, want)
		}
	}
	many := []string{"a1", "a2", "a3", "a4", "a1"}
	if got := suggest.Similar("a", many); len(got) != 3 {
		t.Errorf("%d suggestions: %q", len(got), got)
	}
}

func TestDidYouMean(t *testing.T) {
	if got := suggest.DidYouMean([]string{"a", "b"}); got != ": did you mean a or b?" {
		t.Error(got)
	}
	if got := suggest.DidYouMean([]string{"a", "b", "c"}); got != ": did you mean a, b or c?" {
		t.Error(got)
	}
	if got := suggest.DidYouMean(nil); got != "" {
		t.Error(got)
	}
}
