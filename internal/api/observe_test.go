package api

import (
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestObserveQuery: a query is read as it was written.
func TestObserveQuery(t *testing.T) {
	for _, q := range []ObserveQuery{
		{},
		{Limit: 7, Top: 3, After: 1 << 40, Wait: 20 * time.Second},
		{Filter: Filter{Namespace: "shop", Names: []string{"web", "shop/*"}}, Reasons: []string{"denied", "rate"}, Client: netip.MustParsePrefix("10.0.0.0/8"), Within: 5 * time.Minute, Limit: 1000},
	} {
		got, err := ParseObserveQuery(encode(q.parameters()))
		if err != nil || !reflect.DeepEqual(got, q) {
			t.Errorf("%+v becomes %+v, %v", q, got, err)
		}
	}
	for text, want := range map[string]string{
		"reason=denid":    `reason: "denid" is not a reason: did you mean denied?`,
		"client=10.0.0":   `client: "10.0.0" is neither an address nor a range`,
		"client=10.0.0.7": "",
		"limit=1001":      "limit: \"1001\" is not a number from 0 to 1000",
		"top=x":           "top: \"x\" is not",
		"after=-1":        "after: \"-1\" is not",
		"wait=21s":        "wait: 21s is longer than 20s",
		"since=5":         "since: \"5\" is not a time",
		"service=a%3Fb":   "is not the name of a Service",
		"reason=" + strings.Repeat("rate&reason=", 50) + "rate": "reason: 51 names",
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = ParseObserveQuery(values); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestObserveMatches: what a query selects.
func TestObserveMatches(t *testing.T) {
	q := ObserveQuery{Filter: Filter{Names: []string{"shop/*"}}, Reasons: []string{"rate"}, Client: netip.MustParsePrefix("fd00::/64")}
	none := ObserveQuery{}
	web, other := model.ServiceName{Namespace: "shop", Name: "web"}, model.ServiceName{}
	in, out := netip.MustParseAddr("fd00::7"), netip.MustParseAddr("10.0.0.7")
	got := []bool{q.MatchesReason("rate"), q.MatchesReason("denied"), q.MatchesClient(in), q.MatchesClient(out), q.MatchesService(web), q.MatchesService(other),
		none.MatchesReason("denied"), none.MatchesClient(out), none.MatchesService(other)}
	if want := []bool{true, false, true, false, true, false, true, true, true}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
