package nft_test

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestEveryStatement sends each type of statement through all code that
// distinguishes the types, so that it fails where a new one is missing. (The test of
// that name in package preflight covers the questions to the kernel.)
func TestEveryStatement(t *testing.T) {
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) {
			rules := workload.Statements(f)
			for _, name := range statementTypes(t) {
				if _, ok := rules[name]; !ok && !slices.Contains([]string{"Foreign", "Plain", "Update"}, name) {
					t.Errorf("%s: no sample", name)
				}
			}
			all := slices.Concat(slices.Collect(maps.Values(rules))...)
			for p := range nft.Reset + 1 {
				if !slices.ContainsFunc(all, func(s nft.Statement) bool { plain, ok := s.(nft.Plain); return ok && plain == p }) {
					t.Errorf("%s: no sample", p.Text(f))
				}
			}
			for name, r := range rules {
				explained(t, name, f, r)
			}
			throughKernel(t, workload.StatementTable(f, rules))
		})
	}
}

// explained checks that the tracer knows a rule.
func explained(t *testing.T, name string, f model.Family, r nft.Rule) {
	t.Helper()
	one := workload.StatementTable(f, nil)
	one.Chains = append(one.Chains,
		&nft.Chain{Name: "base", Hook: nft.Prerouting, Priority: nft.PriorityDNAT, Rules: []nft.Rule{r}})
	packet := explain.Packet{Source: netip.MustParseAddr("203.0.113.7"), Destination: netip.MustParseAddr("10.96.0.10"), Protocol: model.TCP, Port: 80, Interface: "eth0"}
	if f == model.IPv6 {
		packet.Source, packet.Destination = netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("fd00:10:96::10")
	}
	for _, o := range explain.Explain(one, packet, nil).Outcomes {
		if o.Verdict == explain.Unknown || len(o.Path) == 0 {
			t.Errorf("%s: %s, %s, after %d rules", name, o.Verdict, o.Reason, len(o.Path))
		}
	}
}

// throughKernel writes a table to the kernel, and compares what the kernel, nft
// and its JSON then say about the rules.
func throughKernel(t *testing.T, want *nft.Table) {
	t.Helper()
	ns := netlab.TestNamespace(t)
	rules := &nft.Ruleset{Tables: []*nft.Table{want}}
	var got *nft.Ruleset
	if err := ns.Do(func() error {
		c, err := kernel.Open()
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Commit(kernel.Prepared{Plan: plan.Diff(&nft.Ruleset{}, rules)}, kernel.AnyGeneration); err != nil {
			return err
		}
		got, _, err = c.Read()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(workload.Sorted(rules), workload.Sorted(got)); diff != "" {
		t.Errorf("the kernel gives back other rules (-want +got):\n%s", diff)
	}
	list := func(arg ...string) []byte {
		cmd := exec.Command("nft", append(arg, "list", "table", nft.FamilyKeyword(want.Family), nft.TableName)...)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := ns.Run(cmd); err != nil {
			t.Fatalf("nft: %v", err)
		}
		return out.Bytes()
	}
	text := string(list())
	for _, c := range want.Chains[1:] {
		if line := c.Rules[0].Text(want.Family); !strings.Contains(text, "\t\t"+line+"\n") {
			t.Errorf("nft does not list %q:\n%s", line, text)
		}
	}
	var own bytes.Buffer
	if err := rules.JSON(&own); err != nil {
		t.Fatal(err)
	}
	theirs, ours := expressions(t, list("-j")), expressions(t, own.Bytes())
	for chain, expr := range ours {
		// nft has a plain text for what its schema lacks.
		if isText := strings.Contains(theirs[chain], "@clients {") || strings.Contains(theirs[chain], "@arrivals {") || strings.Contains(theirs[chain], "@"+nft.SharedAffinityMap+" {"); strings.Contains(expr, "comment:") || !isText && theirs[chain] != expr {
			t.Errorf("the JSON of %s is %s, that of nft %s", chain, expr, theirs[chain])
		}
	}
}

// expressions returns the rules in nft's JSON, by chain.
func expressions(t *testing.T, text []byte) map[string]string {
	t.Helper()
	var list struct {
		NFTables []struct {
			Rule struct {
				Chain string
				Expr  any
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, o := range list.NFTables {
		if o.Rule.Chain != "" {
			out[o.Rule.Chain] = fmt.Sprint(o.Rule.Expr)
		}
	}
	return out
}

//go:embed *.go
var source embed.FS

// statementTypes returns the names of all types of this package that are statements
// of rules: those that have the method Text for a family, and that are neither
// operands nor lists.
func statementTypes(t *testing.T) []string {
	t.Helper()
	files, err := source.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	statements := make(map[string]bool)
	var notStatements []string
	for _, f := range files {
		text, err := source.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				notStatements = append(notStatements, lists(d)...)
			case *ast.FuncDecl:
				if result := d.Type.Results; d.Recv == nil && d.Name.IsExported() && result.NumFields() == 1 {
					if kind, ok := result.List[0].Type.(*ast.Ident); ok && kind.Name == "Update" {
						statements[d.Name.Name] = true
					}
				}
				receiver, method := methodOf(d)
				switch {
				case method == "Text" && takesFamily(d):
					statements[receiver] = true
				case method == "Datatype":
					notStatements = append(notStatements, receiver)
				}
			}
		}
	}
	for _, name := range notStatements {
		delete(statements, name)
	}
	return slices.Sorted(maps.Keys(statements))
}

// lists returns the names of the types of a declaration that are slices.
func lists(d *ast.GenDecl) (names []string) {
	for _, spec := range d.Specs {
		if s, ok := spec.(*ast.TypeSpec); ok {
			if _, ok := s.Type.(*ast.ArrayType); ok {
				names = append(names, s.Name.Name)
			}
		}
	}
	return names
}

func takesFamily(d *ast.FuncDecl) bool {
	if d.Type.Params.NumFields() != 1 {
		return false
	}
	typ, ok := d.Type.Params.List[0].Type.(*ast.SelectorExpr)
	return ok && typ.Sel.Name == "Family"
}

// methodOf returns the receiver's type and the name of a method.
func methodOf(d *ast.FuncDecl) (receiver, name string) {
	if d.Recv == nil {
		return "", ""
	}
	typ := d.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	return typ.(*ast.Ident).Name, d.Name.Name
}
