package balance

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
)

// TestDefaultFields: 1.65. All settings can be defaults, except those that are of one Balance.
func TestDefaultFields(t *testing.T) {
	for _, s := range setting.All {
		if field, _, _ := strings.Cut(s.Field, "."); field != "" && !slices.Contains(defaultFields, field) &&
			!slices.Contains([]*setting.Setting{setting.Description, setting.EndpointsFrom}, s) {
			t.Errorf("setting %s is none of Defaults", s.Field)
		}
	}
}

// TestBalanceSchema: the schema has the fields that the decoder reads, and no others.
func TestBalanceSchema(t *testing.T) {
	type node struct {
		Enum       []any
		Required   []string
		Properties map[string]*node
		Items      *node
		AnyOf      []*node
		Pattern    string
	}
	var schema struct{ Definitions map[string]*node }
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	object := func(n *node) *node { // among alternatives, in a list or not
		for _, alternative := range n.AnyOf {
			for _, a := range append(alternative.AnyOf, alternative) {
				if a.Properties != nil {
					return a
				}
			}
		}
		t.Fatalf("no object in %+v", n)
		return nil
	}
	compare := func(what string, n *node, want []string) {
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(n.Properties)); !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %v, the decoder %v", what, got, want)
		}
	}
	root, pool := schema.Definitions[Kind], schema.Definitions[PoolKind]
	compare("Balance", root, tags(reflect.TypeFor[Balance]()))
	compare("backend", object(root.Properties["backends"]), tags(reflect.TypeFor[Backend]()))
	compare("check", object(root.Properties["check"]), slices.Concat(model.CheckTypes[:], healthcheck.Fields()))
	compare("Servers", pool, tags(reflect.TypeFor[Pool]()))
	of := tags(reflect.TypeFor[Backend]())
	compare("server", object(pool.Properties["servers"]), slices.DeleteFunc(of, func(name string) bool { return name == "servers" }))
	compare("Defaults", schema.Definitions[DefaultsKind], tags(reflect.TypeFor[Defaults]()))
}

// tags returns the names of the fields of a struct in JSON.
func tags(t reflect.Type) (out []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name := tagOf(f); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// TestBalanceOfManyServers: 10,000 servers are in slices that an API server accepts.
func TestBalanceOfManyServers(t *testing.T) {
	b := &Balance{Name: "web", Listen: []string{"203.0.113.10:80"}}
	for i := range 10_000 {
		weight := int32(i % 3)
		b.Backends = append(b.Backends, Backend{Address: fmt.Sprintf("10.%d.%d.1", i/256, i%256), Weight: &weight, Backup: i%2 == 0})
	}
	e := &expander{Balance: b}
	if found := e.expand(); len(found) > 0 || len(e.slices) != 10 {
		t.Fatalf("%d slices, %v", len(e.slices), found)
	}
	for _, s := range e.slices {
		slice, found := convert.EndpointSlice(s)
		if len(found) > 0 || len(slice.Hosts) != 1000 {
			t.Fatalf("%d hosts, %v", len(slice.Hosts), found)
		}
	}
}
