package nodes

import (
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// All pods of a Deployment are replaced while clients make requests. A new pod
// becomes ready by a readiness gate, and an old one answers for some seconds after
// it has begun to terminate. No request fails.
func TestRollingUpdate(t *testing.T) {
	var columns []column
	for _, proxy := range []kubelets.Proxy{kubelets.KubeProxy, kubelets.NFTProxy} {
		t.Run(string(proxy), func(t *testing.T) {
			c := on(t, proxy)
			l := c.startLoad(t, everywhere...)
			c.rollOut(t)
			counts := l.result()
			columns = append(columns, column{string(proxy), counts})
			if proxy == kubelets.NFTProxy {
				mustAnswer(t, counts)
			}
		})
	}
	fmt.Fprintf(t.Output(), "requests:\n%s\n", table(columns...))
}
