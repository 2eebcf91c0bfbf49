package balance

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// PoolKind is the kind of a named list of servers.
const PoolKind = "Servers"

// Pool is a named list of servers, for the Balances of its namespace that name it in an entry of backends.
type Pool struct {
	APIVersion  string                 `json:"apiVersion,omitempty"`
	Kind        string                 `json:"kind"`
	Name        string                 `json:"name"`
	Namespace   string                 `json:"namespace,omitempty"`
	Description string                 `json:"description,omitempty"` // for readers of the file
	Servers     manifest.List[Backend] `json:"servers"`
	// Check is the health check of Balances without one of their own, if it fits them.
	Check any `json:"check,omitempty"`
}

// PoolName identifies a pool.
type PoolName = model.ServiceName

// ID returns the name of the pool with its namespace.
func (p *Pool) ID() PoolName { return idOf(p.Namespace, p.Name) }

func idOf(namespace, name string) PoolName {
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return PoolName{Namespace: namespace, Name: name}
}

// ReadPool reads a pool, and returns the problems with its text and with its fields.
func ReadPool(m *manifest.Object) (p *Pool, problems manifest.Errors, found []*manifest.FieldError) {
	p = new(Pool)
	problems = m.DecodeShort(p)
	misplaced := false
	for _, e := range problems {
		if f, ok := e.Err.(*manifest.FieldError); ok && f.Field == "backends" {
			misplaced, f.Problem = true, manifest.UnknownField+": the list of Servers is in servers"
		}
	}
	// The Balances that have the pool may be relayed, which allows more addresses.
	e := expander{Balance: &Balance{Name: p.Name, Namespace: p.Namespace, Backends: p.Servers, Shared: Shared{Check: p.Check, Relay: "true"}}, list: "servers"}
	e.readName()
	if p.Servers != nil {
		e.readBackends()
	} else if !misplaced {
		e.Add("servers", nil, "missing: write the addresses of the servers, like 10.0.0.2:8443")
	}
	e.check()
	return p, problems, slices.DeleteFunc(e.All(), func(f *manifest.FieldError) bool { return isMisspelt(f, problems) })
}

// Pools returns the names of the pools that a Balance names, each once.
func (b *Balance) Pools() (out []PoolName) {
	known := make(map[string]bool)
	for i := range b.Backends {
		if name := b.Backends[i].Servers; name != "" && !known[name] {
			known[name], out = true, append(out, idOf(b.Namespace, name))
		}
	}
	return out
}

type origin struct {
	entry int    // of the field backends of the Balance
	pool  string // empty: the entry is the backend
}

// with returns a Balance with the servers of pools in the place of the entries that name them, and
// with defaults, which may be nil. A pool that is not there is a finding.
func (b *Balance) with(pools map[PoolName]*Pool, d *Defaults) (e *expander, found []*manifest.FieldError) {
	merged := *b
	e = &expander{Balance: &merged}
	if len(b.Pools()) > 0 {
		found = e.addPools(b, pools)
	}
	e.addDefaults(d)
	return e, found
}

// addPools replaces the entries that name pools. What an entry has is for the servers of the pool
// that have nothing of the kind.
func (e *expander) addPools(b *Balance, pools map[PoolName]*Pool) (found []*manifest.FieldError) {
	e.Backends, e.from = manifest.List[Backend]{}, []origin{}
	for i := range b.Backends {
		entry := &b.Backends[i]
		if entry.Servers == "" {
			e.Backends, e.from = append(e.Backends, *entry), append(e.from, origin{entry: i})
			continue
		}
		pool, problem := pools[idOf(b.Namespace, entry.Servers)], ""
		switch {
		case entry.Address != "":
			problem = "is given beside an address: write an entry for each"
		case pool == nil:
			problem = noPool(b.Namespace, entry.Servers, pools)
		case len(e.Backends)+len(pool.Servers) > budget.PoolServers:
			problem = fmt.Sprintf("makes more than %d servers of the Balance: name fewer lists, or shorter ones", budget.PoolServers)
		}
		if problem != "" {
			found = append(found, &manifest.FieldError{Field: fmt.Sprintf("backends[%d].servers", i), Value: manifest.Quote(entry.Servers), Problem: problem})
			continue
		}
		for j := range pool.Servers {
			e.Backends, e.from = append(e.Backends, entry.mergeInto(pool.Servers[j])), append(e.from, origin{i, entry.Servers})
		}
		if e.Check == nil && pool.Check != nil {
			e.Check, e.inherited = pool.Check, append(e.inherited, setting.Check.Field)
		}
	}
	return found
}

// mergeInto returns a server of a pool with what the entry that names the pool has.
func (b *Backend) mergeInto(s Backend) Backend {
	if s.Port == nil && !hasPort(s.Address) {
		s.Port = b.Port
	}
	if s.Weight == nil {
		s.Weight = b.Weight
	}
	if s.Priority == nil && !s.Backup {
		s.Priority, s.Backup = b.Priority, b.Backup
	}
	s.Drain = s.Drain || b.Drain
	return s
}

func hasPort(address string) bool {
	_, port, _ := cutPort(address)
	return port != ""
}

func noPool(namespace, name string, pools map[PoolName]*Pool) string {
	id := idOf(namespace, name)
	var names []string
	for other := range pools {
		if other.Namespace == id.Namespace {
			names = append(names, other.Name)
		} else if other.Name == name {
			return fmt.Sprintf("is in namespace %s: a Balance uses %s of its own namespace, %s", other.Namespace, PoolKind, id.Namespace)
		}
	}
	slices.Sort(names)
	problem := "is not the name of an object of kind " + PoolKind + " in the files"
	if similar := suggest.Similar(name, names); len(similar) > 0 {
		return problem + suggest.DidYouMean(similar[:1])
	}
	return problem + ": add one, or correct the name"
}

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
