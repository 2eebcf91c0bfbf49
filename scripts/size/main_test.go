package main

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/test/program"
)

var binary string

func TestMain(m *testing.M) { os.Exit(program.Run(&binary, "../../cmd/nftproxy", m.Run)) }

// TestPackages: symbols of every kind lead to their package, and packages to their group.
func TestPackages(t *testing.T) {
	for symbol, want := range map[string][2]string{
		"github.com/nftproxy/nftproxy/internal/nft.(*Set).Clone": {"github.com/nftproxy/nftproxy/internal/nft", "nftproxy"},
		"main.main":                                  {"main", "nftproxy"},
		"k8s.io/api/core/v1.(*Pod).Marshal":          {"k8s.io/api/core/v1", "types of the Kubernetes API"},
		"k8s.io/apimachinery/pkg/runtime.init":       {"k8s.io/apimachinery/pkg/runtime", "apimachinery and other parts of Kubernetes"},
		"type:.eq.net/http.connectMethodKey":         {"net/http", "HTTP, TLS and cryptography"},
		"net/http/internal.init":                     {"net/http/internal", "HTTP, TLS and cryptography"},
		"net.(*netFD).Read":                          {"net", standard},
		"slices.SortFunc[go.shape.[]net/netip.Addr]": {"slices", standard},
		"gopkg.in/inf%2ev0.(*Dec).Add":               {"gopkg.in/inf.v0", "apimachinery and other parts of Kubernetes"},
		"runtime.mallocgc":                           {"runtime", "Go runtime"},
		"runtime/debug.SetGCPercent":                 {"runtime/debug", "Go runtime"},
		"memeqbody":                                  {"runtime", "Go runtime"},
		"go:func.*":                                  {"", tables},
		"type:*":                                     {"", tables},
		"example.org/x/y.F":                          {"example.org/x/y", modules},
	} {
		if pkg := packageOf(symbol); pkg != want[0] || groupOf(pkg) != want[1] {
			t.Errorf("%s: package %q in %q, want %q", symbol, pkg, groupOf(pkg), want)
		}
	}
}

// TestMeasure: the parts of the program are all of it, and none is less than nothing. A
// start initializes packages.
func TestMeasure(t *testing.T) {
	all, err := measure(binary, binary, 2)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[results.Operation]int64{}
	for _, r := range all {
		sums[r.Operation]++
		if p := r.Part; p != nil {
			if p.Code < 0 || p.Data < 0 || p.File < 0 || p.Code+p.Data+p.File == 0 {
				t.Errorf("%s: %+v", r.Scenario, *p)
			}
			sums["parts"] += p.Code + p.Data
			if r.Scenario == results.StrippedProgram {
				sums["file"] = p.File
			}
		}
	}
	if parts, file := sums["parts"], sums["file"]; parts < file/2 || parts > file {
		t.Errorf("the parts have %d bytes, the file %d", parts, file)
	}
	if sums[results.ProgramSize] < int64(len(groups)) || sums[results.ProgramStart] != 1 || sums[results.ProgramInit] != mostInits+1 {
		t.Errorf("records: %v", sums)
	}
}
