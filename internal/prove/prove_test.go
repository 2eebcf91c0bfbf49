package prove_test

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/prove"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/proof"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
	"github.com/nftproxy/nftproxy/internal/testkit/worlds"
)

var (
	services = flag.Int("services", 300, "number of Services to prove")
	seeds    = flag.Uint64("seeds", 3, "number of random worlds to prove")
)

// check proves the rules for some objects.
func check(t *testing.T, k *proof.Kernel, s *model.Snapshot, c model.Config) {
	t.Helper()
	r, err := k.Become(proof.Phase{Snapshot: s, Config: c})
	if err != nil {
		t.Fatal(err)
	}
	checkReport(t, r)
}

func checkReport(t *testing.T, r *prove.Report) {
	t.Helper()
	var text strings.Builder
	if err := r.Print(&text); err != nil || r.Wrong > 0 {
		t.Fatalf("%v\n%s", err, text.String())
	}
}

// TestServices proves the rules of many Services, and prints what it takes. Each fourth Service
// has more than a ClusterIP.
func TestServices(t *testing.T) {
	states := workload.Services(*services, 4)
	s := &model.Snapshot{Nodes: workload.FullNodes(), ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}
	for i, name := range slices.SortedFunc(maps.Keys(states), model.ServiceName.Compare) {
		state := states[name]
		if i%4 == 0 {
			state.Service = varied(state.Service, i)
		}
		s.Services = append(s.Services, state.Service)
		s.Slices = append(s.Slices, state.Slices...)
	}
	c := model.Config{NodeName: "node-1", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}
	var rules bytecode.Ruleset
	if err := codec.CarryOut(plan.Diff(&nft.Ruleset{}, render.Render(model.Resolve(s, c))), &rules, nil); err != nil {
		t.Fatal(err)
	}
	begin := processorTime(t)
	r := prove.NewWorld(s, c).Prove(&rules)
	took := processorTime(t) - begin
	fmt.Fprintf(t.Output(), "%d Services: %d classes, %d wrong, in %.1f s of processor time, %.1f µs each\n", *services, r.Classes, r.Wrong, took.Seconds(), float64(took.Microseconds())/float64(r.Classes))
	checkReport(t, r)
}

// processorTime returns what the process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// varied returns a Service with a NodePort, external addresses, a policy or affinity.
func varied(s *model.Service, i int) *model.Service {
	out := *s
	out.External = &model.External{LoadBalancerIPs: []netip.Addr{netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)})}}
	out.Ports = slices.Clone(s.Ports)
	switch i / 4 % 4 {
	case 0:
		out.Ports[0].NodePort = uint16(20000 + i)
	case 1:
		out.ExternalPolicy = model.PolicyLocal
	case 2:
		out.AffinityTimeout = time.Hour
	case 3:
		out.External.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}
	return &out
}

// TestRandomWorlds proves the rules of random objects, and those that a plan leads to: from all rules,
// and from the rules before a change as an agent does it.
func TestRandomWorlds(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := workload.NewWorld(seed)
			compares, follows := &proof.Kernel{Between: true}, &proof.Kernel{Between: true, Follows: true}
			for range 20 {
				w.Step()
				check(t, compares, w.Snapshot(), w.Config)
				check(t, follows, w.Snapshot(), w.Config)
			}
		})
	}
}

// TestRandomFiles does so for files of Services and Balances.
func TestRandomFiles(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := worlds.New(seed)
			k := proof.Kernel{Between: true}
			for range 5 {
				check(t, &k, load(t, w), model.Config{NodeName: "node-1"})
				w.Next()
			}
		})
	}
}

// load reads the files of a world.
func load(t *testing.T, w *worlds.World) *model.Snapshot {
	t.Helper()
	texts, err := w.Files()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(&all, "%s\n---\n", texts[name])
	}
	in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(all.String()), Keep: true}).Load()
	if err != nil {
		t.Fatal(err)
	}
	return in.Snapshot
}
