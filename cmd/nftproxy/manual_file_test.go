package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"

	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// filePage is the manual page of the format of a file.
const filePage = "nftproxy-balance.5"

// fieldSchema is the part of a JSON Schema that a manual page has.
type fieldSchema struct {
	Description string
	Properties  map[string]*fieldSchema
	Required    []string
	AnyOf       []*fieldSchema
	Items       *fieldSchema
	Enum        []any
	Const       any
	Default     any
}

// balanceManual returns the manual page of the fields of a Balance.
func balanceManual(t *testing.T) []byte {
	t.Helper()
	var s struct{ Definitions map[string]*fieldSchema }
	example, err := os.ReadFile("../../docs/examples/all.yaml")
	pools, err2 := os.ReadFile("../../docs/examples/pools.yaml")
	if err := cmp.Or(err, err2, json.Unmarshal(balance.Schema(), &s)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprint(&b, "% \"NFTPROXY-BALANCE\" \"5\" \"\" \"nftproxy\" \"nftproxy\"\n# NAME\nnftproxy-balance - file that says what nftproxy balances\n"+
		"# SYNOPSIS\n**/etc/nftproxy/conf.d/\\*.yaml**\n# DESCRIPTION\nA file of YAML or JSON with one or more documents of the kind Balance, "+
		"each of which sends the connections to some addresses and ports to servers. **nftproxy validate -f** *FILE* finds mistakes, "+
		"and **nftproxy new** writes a first file. Documents of the kind Servers are lists of servers for several Balances, and one "+
		"of the kind Defaults has values for all Balances in the files of its directory.\n# FIELDS\n")
	manualFields(&b, "", s.Definitions[balance.Kind])
	fmt.Fprint(&b, "# FIELDS OF SERVERS\n")
	manualFields(&b, "", s.Definitions[balance.PoolKind])
	fields := slices.Sorted(maps.Keys(s.Definitions[balance.DefaultsKind].Properties))
	fmt.Fprintf(&b, "# FIELDS OF DEFAULTS\nAs in a Balance, which has its own value in place of the default: **%s**.\n", strings.Join(fields, "**, **"))
	fmt.Fprintf(&b, "# EXAMPLES\nAll fields:\n\n```\n%s```\n\nServers of several Balances, and defaults:\n\n```\n%s```\n# SEE ALSO\n**nftproxy**(1), **nftproxy-new**(1), **nftproxy-run**(1), **nftproxy-validate**(1)\n", example, pools)
	return md2man.Render(b.Bytes())
}

// manualFields writes the fields of an object by name, and what is below them.
func manualFields(w io.Writer, above string, s *fieldSchema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		f := s.Properties[name]
		if f.Description == "" && f.Const == nil {
			f.Description = "NOT DESCRIBED"
		}
		text := inline(f.Description)
		if slices.Contains(s.Required, name) {
			text = strings.TrimSuffix("required; "+text, "; ")
		}
		if values := f.values(); values != "" {
			text = strings.TrimPrefix(text+": "+values, ": ")
		}
		if f.Default != nil {
			text += fmt.Sprintf(" (default %v)", f.Default)
		}
		fmt.Fprintf(w, "**%s%s**\n: %s\n\n", above, name, text)
		for _, o := range f.objects() {
			manualFields(w, above+name+".", o)
		}
	}
}

// values lists the values that a field may have, if the schema does.
func (s *fieldSchema) values() string {
	all := s.Enum
	if s.Const != nil {
		all = []any{s.Const}
	}
	var out []string
	for _, v := range all {
		out = append(out, fmt.Sprint(v))
	}
	return strings.Join(out, ", ")
}

// objects returns the forms of a value that have fields.
func (s *fieldSchema) objects() (out []*fieldSchema) {
	if len(s.Properties) > 0 {
		out = append(out, s)
	}
	for _, o := range s.AnyOf {
		out = append(out, o.objects()...)
	}
	if s.Items != nil {
		out = append(out, s.Items.objects()...)
	}
	return out[:min(len(out), 1)]
}

// TestBalanceManual compares the manual page with the schema: each field has a line. "make
// docs" writes it.
func TestBalanceManual(t *testing.T) {
	path := filepath.Join(manPages, filePage)
	want := balanceManual(t)
	if *update {
		if err := replace(path, want); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, want) {
		t.Errorf("%s does not match the schema (%v): run \"make docs\"", path, err)
	}
	if bytes.Contains(want, []byte("NOT DESCRIBED")) {
		t.Errorf("fields lack a description in the schema:\n%s", want)
	}
	for _, field := range []string{"listen", "backends.weight", "backends.drain", "check.interval", "check.whenAllFail", "limits.ratePerClient", "scheduler"} {
		if !bytes.Contains(want, []byte("\n\\fB"+strings.ReplaceAll(field, "-", "\\-")+"\\fP\n")) {
			t.Errorf("the page lacks the field %s", field)
		}
	}
}
