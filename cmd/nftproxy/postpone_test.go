package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestStartJitter: with rules of an earlier run in the kernel, the objects are
// read after a random time; without, immediately (13.26).
func TestStartJitter(t *testing.T) {
	ns := netlab.TestNamespace(t)
	api := apilab.Start(t, ns, nodeAndService)
	run := func(flags ...string) *process {
		return start(t, ns, append([]string{"nftproxy", "run", "--master", api.URL, noLimit, "--hostname-override", "node-1"}, flags...)...)
	}
	p := run("--start-jitter=10000h")
	eventually(t, "without rules there is no wait", func() bool { return strings.Contains(p.log.String(), "rules applied") })
	p.kill()
	before := ns.TestGeneration(t)
	api.Forget()

	p = run("--start-jitter=10000h")
	eventually(t, "the node is healthy", func() bool {
		code, _ := get(t, ns, "http://127.0.0.1:10256/healthz")
		return code == http.StatusOK
	})
	eventually(t, "status reports the wait", func() bool {
		_, text := get(t, ns, "http://127.0.0.1:10249/status")
		return strings.Contains(text, `"postponedUntil"`)
	})
	for kind, want := range map[string]bool{"Node": true, "Service": false, "EndpointSlice": false, "ServiceCIDR": false} {
		if got := api.WasRead(kind); got != want {
			t.Errorf("reads %s: %t, want %t", kind, got, want)
		}
	}
	p.says(t, "the rules of an earlier run stay")
	p.kill()
	if after := ns.TestGeneration(t); after-before > 1 { // one claims the tables
		t.Errorf("generation %d after %d", after, before)
	}

	p = run("--start-jitter=1ns")
	eventually(t, "the wait is over", func() bool { return api.WasRead("Service") })
}
