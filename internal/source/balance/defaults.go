package balance

import (
	"reflect"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// DefaultsKind is the kind of the defaults of a directory.
const DefaultsKind = "Defaults"

// Defaults are values of fields for the Balances in the files of a directory. A field that a
// Balance has itself replaces the default as a whole. A check is for Balances with a port that it
// fits, and relay for those with one of TCP.
type Defaults struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Shared
}

// defaultFields are the names of the fields that Defaults have, in the order of [Shared].
var defaultFields = func() (out []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Shared]()) {
		out = append(out, tagOf(f))
	}
	return out
}()

func tagOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// HasDefault reports whether [Defaults] may have a field of a Balance.
func HasDefault(field string) bool { return slices.Contains(defaultFields, field) }

// ReadDefaults reads defaults, and returns the problems with their text and with their fields.
func ReadDefaults(m *manifest.Object) (d *Defaults, problems manifest.Errors, found []*manifest.FieldError) {
	d = new(Defaults)
	problems = m.DecodeShort(d)
	for _, e := range problems {
		f, ok := e.Err.(*manifest.FieldError)
		if !ok {
			continue
		}
		field, _, _ := strings.Cut(f.Field, "[")
		if _, ofBalance := indexes[reflect.TypeFor[Balance]()][field]; ofBalance && strings.HasPrefix(f.Problem, manifest.UnknownField) {
			f.Problem = "has no default: write it in each Balance"
		} else if f.Problem == manifest.NotText {
			f.Problem = numberProblem(f)
		}
	}
	for _, f := range d.tryDefaults() {
		if field, _, _ := strings.Cut(strings.ReplaceAll(f.Field, "[", "."), "."); HasDefault(field) {
			found = append(found, f)
		}
	}
	return d, problems, found
}

// tryDefaults returns the findings about Balances that have the defaults, of one family and of the other
// one: nothing but a default is wrong with both.
func (d *Defaults) tryDefaults() (out []*manifest.FieldError) {
	var before []*manifest.FieldError
	for i, addresses := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"[2001:db8::1]", "2001:db8::2"}} {
		b := Balance{Name: "defaults", Listen: []string{addresses[0] + ":80"}, Protocol: []string{"tcp,udp"}, Backends: []Backend{{Address: addresses[1]}}}
		e, _ := b.with(nil, d)
		found := (&expander{Balance: e.Balance}).expand()
		for _, f := range found {
			same := func(o *manifest.FieldError) bool { return o.Field == f.Field && o.Problem == f.Problem }
			if !f.Warning && i > 0 && slices.ContainsFunc(before, same) {
				out = append(out, f)
			}
		}
		before = found
	}
	return out
}

func (e *expander) addDefaults(d *Defaults) {
	if d == nil {
		return
	}
	from, to := reflect.ValueOf(&d.Shared).Elem(), reflect.ValueOf(&e.Shared).Elem()
	for i, name := range defaultFields {
		if to.Field(i).IsZero() && !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
			e.inherited = append(e.inherited, name)
		}
	}
}

// ownFindings returns the findings about a Balance as it is written: without warnings about what it does
// not have itself.
func (e *expander) ownFindings(found []*manifest.FieldError) (out []*manifest.FieldError) {
	for _, f := range found {
		field, _, _ := strings.Cut(strings.ReplaceAll(f.Field, "[", "."), ".")
		if slices.Contains(e.inherited, field) {
			if f.Warning {
				continue
			}
			f.Problem += " (from " + DefaultsKind + " or " + PoolKind + ")"
		}
		out = append(out, f)
	}
	return out
}
