package files

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 1.54: what a file says of addresses of the machine, an API server does not.
func TestRangesOnNode(t *testing.T) {
	const service = `{apiVersion: v1, kind: Service, metadata: {name: a, %sannotations: {nftproxy.dev/ports: "%s"}}, spec: {clusterIP: 10.96.0.1}}`
	for text, want := range map[string]bool{
		fmt.Sprintf(service, "", "10-20"):           true,
		fmt.Sprintf(service, "", "all"):             false,
		fmt.Sprintf(service, "uid: x, ", "10-20"):   false,
		fmt.Sprintf(service, "", "2-65535, 30/udp"): true,
	} {
		in, err := load(text)
		check(t, err)
		onNode := func(p model.PortRange) bool { return p.OnNode == want }
		if r := in.Snapshot.Services[0].Extra().Ranges; len(r) == 0 || slices.ContainsFunc(r, func(p model.PortRange) bool { return !onNode(p) }) {
			t.Errorf("%s: %+v, want %t", text, r, want)
		}
	}
}

// TestEndpointsFromAlone: 14.23. A Service of a file that takes the endpoints of another one
// needs none of its own.
func TestEndpointsFromAlone(t *testing.T) {
	in, err := load(`{apiVersion: v1, kind: Service, metadata: {name: vip, annotations: {nftproxy.dev/endpoints-from: default/kubernetes}}, spec: {clusterIP: 192.0.2.100, ports: [{port: 6443}]}}`)
	if err != nil || len(in.Warnings) > 0 {
		t.Errorf("without endpoints of its own: %v, %v", err, in.Warnings)
	}
}
