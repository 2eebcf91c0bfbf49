package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzDocument: 18.1. Any document of a node, of this version and of the one before, is an error, or a text without
// control characters; and it takes memory in proportion to its length.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		`{"from":"daemon","healthy":true,"node":"n1","lastSync":{"cause":"start"},"seen":{"services":"7"},"counted":true,"problems":[{"object":"Service shop/web","reason":"NoEndpoints","message":"m"}],"servicePorts":[{"namespace":"shop","name":"web","protocol":"tcp","frontends":[{"kind":"ClusterIP","address":"10.96.0.1:80","verdict":"forward"}]}]}`,
		`{"apiVersion":"nftproxy.dev/v1","words":"balance","problems":[{"object":"Balance \u001b[2J"},{"object":"Name\n"},{"object":""}],"notes":[{"object":"Endpoint x"}]}`,
		`{"apiVersion":"nftproxy.dev/v2","from":"daemon","daemon":{"node":"\u009b1m","version":"\u202e"},"rules":{"lastSync":{"error":"\r"}},"findings":{"problems":[{"object":{"kind":"Service","name":"\u001b"},"reason":"\u0000","message":"a\nb"}]},"servicePorts":[{"name":"\t","frontends":[{}]}]}`,
		`{"apiVersion":"nftproxy.dev/v2","service":{},"namespace":"a","name":"b","ports":[{"frontends":[{}],"endpoints":[{}]}]}`,
		`{"apiVersion":"nftproxy.dev/v2","servicePorts":[` + strings.Repeat("{},", 500) + `{}]}`,
		`{"apiVersion":"nftproxy.dev/v3"}`, `{"apiVersion":7}`, "[", "null", "",
	} {
		f.Add([]byte(text))
	}
	now := time.Unix(1_000_000_000, 0)
	f.Fuzz(func(t *testing.T, content []byte) {
		var status api.Status
		var described api.Description
		var out strings.Builder
		hostile.CheckMemory(t, len(content), 2048, func() {
			if new(decoder).Decode(content, &status) == nil {
				if err := show.Status(&out, &status, show.View{Now: now}); err != nil {
					t.Error(err)
				}
			}
			if new(decoder).Decode(content, &described) == nil {
				if err := show.Description(&out, &described, now, false); err != nil {
					t.Error(err)
				}
			}
		})
		hostile.CheckText(t, out.String())
	})
}
