package explain

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestLimits: the answer names the limits on the way, in words and in JSON, and is that
// of a connection within them (4.92).
func TestLimits(t *testing.T) {
	rate := nft.Limit{Rate: model.Rate{Amount: 100, Burst: 20}}
	client := append(dialled[:3:3], nft.SourceAddress)
	table := tableOf(
		nft.Rule{nft.InSet{Key: dialled, Set: "rates"}, drop},
		nft.Rule{nft.OverLimit("clients", client, nft.Limit{Connections: 7}), drop},
		choose(1, 0, "endpoints"))
	r := from(t, "203.0.113.7 tcp 10.96.0.10:80")
	table.Sets = append(table.Sets, &nft.Set{Name: "rates", Key: []nft.Datatype{nft.Address, nft.InetProto, nft.Port}, Limits: nft.RateLimits,
		Elements: []nft.Element{{Key: nft.FrontendKey(r.Frontend()), Value: nft.LimitValue(rate)}}})
	result := Explain(table, r, nil)
	if got := briefs(result); got != "forward 10.0.0.1:1" {
		t.Errorf("the connection is %s", got)
	}
	var text, json strings.Builder
	if err := Print(&text, result, Normal, false); err != nil {
		t.Fatal(err)
	}
	if err := JSON(&json, result); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"100 new connections per second (burst 20); more are dropped", "7 connections per client; more are dropped",
		"within the limit: 7 connections per client", "@rates: 10.96.0.10 . tcp . 80 limit rate over 100/second burst 20 packets",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &text)
		}
	}
	if !strings.Contains(json.String(), `"100 new connections per second (burst 20)"`) {
		t.Errorf("limits are missing in:\n%s", &json)
	}
}
