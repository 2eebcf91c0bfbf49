package api

import (
	"net/url"
	"reflect"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzQuery: any query of a URL is an error, or a question within its limits, which is asked again with the same words.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{"", "service=shop/web&service=a*&namespace=x&problems=true&rows=5", "rows=-1", "wait=21s", "wait=20s&after=7", "limit=10001&wait=1h", "limit=0&filter=a&service=shop/web&sort=name&text",
		"clients=10.0.0.0/8&clients=::1%25x&since=7&wait=30s&reason=NoEndpoints&outcome=refused", "reason=a&outcome=\x1b", "%zz", "top=99999999999999999999", "a;b"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		hostile.CheckMemory(t, len(query), 4096, func() {
			if q, err := ParseFilter(values); err == nil {
				again, err := ParseFilter(encode(q.parameters()))
				if err != nil || !reflect.DeepEqual(again, q) || len(q.Names) > maxNames || q.Rows < 0 {
					t.Errorf("%q is %+v, then %+v, %v", query, q, again, err)
				}
			}
			if q, err := ParseLiveQuery(values); err == nil {
				again, err := ParseLiveQuery(encode(q.parameters()))
				if q.Limit == defaultLive {
					again.Limit = q.Limit
				}
				if err != nil || q.Limit < 0 || q.Limit > maxLive || len(q.Filter)+len(q.Service) > 2*maxLiveText || again.Filter != q.Filter || again.Service != q.Service {
					t.Errorf("%q is %+v, then %+v, %v", query, q, again, err)
				}
			}
			if q, err := ParseObserveQuery(values); err == nil && (q.Wait < 0 || q.Wait > MaxWait || len(q.Reasons) > maxReasons || q.Limit < 0 || q.Top < 0) {
				t.Errorf("%q is %+v", query, q)
			}
		})
	})
}
