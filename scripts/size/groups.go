package main

import "strings"

// group is a part of the program: packages that belong together.
type group struct {
	name     string
	prefixes []string // of import paths
}

// groups are asked in this order; the first one with a prefix of a package has it.
var groups = []group{
	{"nftproxy", []string{"github.com/nftproxy/", "main"}},
	{"types of the Kubernetes API", []string{"k8s.io/api/"}},
	{"client-go", []string{"k8s.io/client-go/"}},
	{"apimachinery and other parts of Kubernetes", []string{"k8s.io/", "sigs.k8s.io/structured-merge-diff/", "sigs.k8s.io/randfill", "github.com/go-logr/", "gopkg.in/inf"}},
	{"YAML, JSON and CBOR", []string{"sigs.k8s.io/", "go.yaml.in/", "github.com/json-iterator/", "github.com/modern-go/", "github.com/fxamacker/", "github.com/x448/", "encoding/json"}},
	{"protobuf", []string{"google.golang.org/protobuf/"}},
	{"metrics", []string{"github.com/prometheus/", "github.com/beorn7/", "github.com/cespare/", "github.com/munnerz/", "github.com/blang/"}},
	{"terminal of \"nftproxy top\"", []string{"charm.land/", "github.com/charmbracelet/", "github.com/clipperhouse/", "github.com/lucasb-eyer/", "github.com/mattn/", "github.com/muesli/", "github.com/rivo/", "github.com/xo/"}},
	{"flags and help", []string{"github.com/spf13/"}},
	{"netlink", []string{"github.com/google/nftables", "github.com/vishvananda/", "github.com/mdlayher/", "golang.org/x/sys/"}},
	{"HTTP, TLS and cryptography", []string{"net/http", "crypto", "vendor/golang.org/x/", "golang.org/x/net/", "golang.org/x/oauth2", "golang.org/x/crypto", "mime", "compress", "encoding/asn1", "encoding/pem", "hash"}},
	{"Go runtime", []string{"runtime", "internal/runtime", "reflect", "sync", "internal/abi", "internal/bytealg", "internal/cpu", "internal/reflectlite", "unique", "iter"}},
}

// Other parts.
const (
	standard = "the rest of Go's standard library"
	modules  = "other modules"
	tables   = "tables of functions, types and strings, which Go shares among all"
)

// groupOf returns the part that a package belongs to.
func groupOf(pkg string) string {
	if pkg == "" {
		return tables
	}
	for _, g := range groups {
		for _, p := range g.prefixes {
			if pkg == strings.TrimSuffix(p, "/") || strings.HasPrefix(pkg, p) && (strings.HasSuffix(p, "/") || pkg[len(p)] == '/' || strings.Contains(p, ".")) {
				return g.name
			}
		}
	}
	if first, _, _ := strings.Cut(pkg, "/"); !strings.Contains(first, ".") {
		return standard
	}
	return modules
}

// packageOf returns the import path of the package that a symbol is from; empty: the linker
// made it for several.
func packageOf(symbol string) string {
	for _, p := range []string{"type:.eq.", "type:.hash."} {
		symbol = strings.TrimPrefix(symbol, p)
	}
	if strings.HasPrefix(symbol, "go:") || strings.HasPrefix(symbol, "type:") || strings.HasPrefix(symbol, "struct {") || strings.HasPrefix(symbol, "[") {
		return ""
	}
	symbol, _, _ = strings.Cut(symbol, "[") // arguments of types have paths, too
	dir := strings.LastIndexByte(symbol, '/') + 1
	name, _, ok := strings.Cut(symbol[dir:], ".")
	if !ok {
		return "runtime" // assembly
	}
	return symbol[:dir] + strings.ReplaceAll(name, "%2e", ".")
}
