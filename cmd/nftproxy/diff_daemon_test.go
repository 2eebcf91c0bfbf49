package main

import (
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestDiffTakesCounters: 12.84. What the rules in the kernel count is no difference, unless
// a flag asks for another thing.
func TestDiffTakesCounters(t *testing.T) {
	path := writeFile(t, service)
	for _, c := range []struct {
		daemon string
		diffs  map[string]string // flags of diff, and what it says
	}{
		{"", map[string]string{"": "No changes.\n", "--service-metrics": "map services ", "--endpoint-metrics": "map endpoints "}},
		{"--service-metrics", map[string]string{"": "No changes.\n", "--service-metrics": "No changes.\n", "--service-metrics=false": "map services ", "--endpoint-metrics": "map endpoints "}},
		{"--endpoint-metrics", map[string]string{"": "No changes.\n", "--service-metrics": "No changes.\n", "--endpoint-metrics": "No changes.\n", "--endpoint-metrics=false": "map endpoints "}},
	} {
		ns := netlab.TestNamespace(t)
		daemon := start(t, ns, strings.Fields("nftproxy run --hostname-override node-1 -f "+path+" "+c.daemon)...)
		eventually(t, "rules", func() bool { return rendered(t, ns, "10.96.0.10:80") })
		for flags, want := range c.diffs {
			d := start(t, ns, strings.Fields("nftproxy diff --hostname-override node-1 -f "+path+" "+flags)...)
			code := cli.CodeNo
			if want == "No changes.\n" {
				code = 0
			}
			d.ends(t, code)
			if got := d.output.String(); code == 0 && got != want || !strings.Contains(got, want) {
				t.Errorf("run %s, diff %s: no %q in %s%s", c.daemon, flags, want, got, &d.log)
			}
		}
		daemon.kill()
	}
}

// TestApplyKeepsCounts: 12.84. After the end of a daemon that counts, apply changes what the
// file asks for, and the counts of the rest go on.
func TestApplyKeepsCounts(t *testing.T) {
	ns, path := netlab.TestNamespace(t), writeFile(t, service)
	daemon := start(t, ns, "nftproxy", "run", "--hostname-override", "node-1", "--endpoint-metrics", "-f", path)
	eventually(t, "rules", func() bool { return rendered(t, ns, "10.96.0.10:80") })
	ns.TestScript(t, "ip link set lo up && ip address add 192.0.2.1/24 dev lo && ip route add default dev lo")
	elements := func() (out []string) {
		text := ns.NFT(t, "list", "map", "ip", "nftproxy", "services") + ns.NFT(t, "list", "map", "ip", "nftproxy", "endpoints")
		return regexp.MustCompile(`10\.96\.0\.10 [^,}]* counter packets [0-9]+ bytes [0-9]+`).FindAllString(text, -1)
	}
	eventually(t, "counts", func() bool { // no server answers; the rules count an attempt if its time suffices to begin it
		if err := ns.Do(func() error { _, err := net.DialTimeout("tcp", "10.96.0.10:80", time.Millisecond); return err }); err == nil {
			t.Fatal("connected")
		}
		return regexp.MustCompile(`packets ([3-9]|[0-9]{2,}) `).MatchString(strings.Join(elements(), " "))
	})
	daemon.kill()
	before := elements()
	if len(before) != 3 {
		t.Fatalf("counted: %q", before)
	}
	more := service + "---\n" + strings.NewReplacer("name: web", "name: more", "service-name: web", "service-name: more", "10.96.0.10", "10.96.0.11").Replace(service)
	r := in(t, ns, "apply", "--hostname-override", "node-1", "-f", writeFile(t, more))
	if r.code != 0 || !strings.HasPrefix(r.stdout, "Services: 1 added.\n") || strings.Contains(r.stdout, "map services {") {
		t.Errorf("code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	after := elements()
	slices.Sort(before)
	if slices.Sort(after); !slices.Equal(before, after) {
		t.Errorf("counts %q after apply, %q before", after, before)
	}
}
