package files

import (
	"maps"
	"reflect"
	"slices"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// index describes the input that a follower has read last, so that an edit costs the
// Services that it concerns. The checks of the whole input walk over all objects then, without
// memory for each. Its zero value knows nothing.
type index struct {
	files  []string
	states map[model.ServiceName]model.ServiceState
	// reviewed are the warnings of the review.
	reviewed map[*object]noted
	skipped  manifest.Errors // the remark about objects of other kinds
	// whole reports that warnings or decisions about a Service may depend on others, so that each
	// edit is checked with all objects.
	whole bool
}

// again returns the changes of an input of which only parts were read, and its warnings; false: all
// objects must be checked.
func (x *index) again(contents []content) (*model.Update, manifest.Errors, bool) {
	if x.whole || len(contents) != len(x.files) {
		return nil, nil, false
	}
	t := touched{names: make(map[model.ServiceName]struct{}), references: make(map[model.Object]int)}
	for i := range contents {
		if contents[i].name != x.files[i] || contents[i].edit == nil || !t.add(contents[i].edit) {
			return nil, nil, false
		}
	}
	if !t.find(contents) {
		return nil, nil, false
	}
	r := newReview(0)
	for _, o := range t.objects {
		r.note(o.object)
	}
	for _, o := range t.objects {
		if r.look(o) { // who has no Service here depends on all of them
			return nil, nil, false
		}
	}
	x.note(&t, r)
	return x.update(&t), x.warnings(contents), true
}

// touched is what an edit concerns.
type touched struct {
	names      map[model.ServiceName]struct{}
	references map[model.Object]int // of the objects that are new; how many have it
	removed    []*object
	objects    []located // of the names
}

// add adds an edit; false: it concerns more than Services.
func (t *touched) add(e *edit) bool {
	for _, o := range slices.Concat(e.removed, e.added) {
		name, ok := o.belongsTo()
		switch {
		case o.supports(): // what it changes is a part of the edit
			continue
		case !ok, o.runsProgram():
			return false
		}
		t.names[name] = struct{}{}
	}
	for _, o := range e.added {
		o.eachName(func(id model.Object) bool {
			t.references[id] = 0
			return true
		})
	}
	t.removed = append(t.removed, e.removed...)
	return true
}

// belongsTo returns the Service with which an object is reviewed; false: it is of a kind about
// which more depends.
func (o *object) belongsTo() (name model.ServiceName, ok bool) {
	switch {
	case o.is(balance.Kind) && o.service != nil, o.is("Service"):
		id := o.id()
		if name = (model.ServiceName{Namespace: id.Namespace, Name: id.Name}); o.service != nil {
			name = o.service.Name
		}
		return name, true
	case o.is("EndpointSlice"):
		name, _ = o.serviceOf() // without one, it is not used
		return name, true
	}
	return name, false
}

// supports reports whether an object is nothing but a part of Balances.
func (o *object) supports() bool {
	return o.rare != nil && (o.rare.pool != nil || o.rare.defaults != nil)
}

// find finds the objects of the names; false: another object has a reference of a new one.
func (t *touched) find(contents []content) (unique bool) {
	unique = true
	for i := range contents {
		contents[i].each(func(o *object, at manifest.Place) {
			o.eachName(func(id model.Object) bool {
				if n, ok := t.references[id]; ok {
					t.references[id] = n + 1
					unique = unique && n == 0
				}
				return true
			})
			name, ok := o.belongsTo()
			if _, mine := t.names[name]; ok && mine {
				t.objects = append(t.objects, located{o, at})
			}
		})
	}
	return unique
}

// note replaces the warnings of the review.
func (x *index) note(t *touched, r *review) {
	for _, o := range t.removed {
		delete(x.reviewed, o)
	}
	for _, o := range t.objects {
		delete(x.reviewed, o.object)
	}
	maps.Copy(x.reviewed, r.warnings)
}

// update changes the states of the names, and returns those that differ.
func (x *index) update(t *touched) *model.Update {
	now := make(map[model.ServiceName]model.ServiceState, len(t.names))
	for _, o := range t.objects {
		name, _ := o.belongsTo()
		s := now[name]
		if o.service != nil {
			s.Service = o.service
		}
		s.Slices = append(s.Slices, o.slices()...)
		now[name] = s
	}
	u := &model.Update{Services: make(map[model.ServiceName]model.ServiceState, len(t.names))}
	for name := range t.names {
		s := now[name]
		if s.Service == nil { // slices alone are no state
			s = model.ServiceState{}
		}
		if was, known := x.states[name]; known != (s.Service != nil) || known && !reflect.DeepEqual(was, s) {
			u.Services[name] = s
		}
		if delete(x.states, name); s.Service != nil {
			x.states[name] = s
		}
	}
	return u
}

// warnings returns the warnings about the objects, in their order.
func (x *index) warnings(contents []content) (out manifest.Errors) {
	for i := range contents {
		contents[i].each(func(o *object, at manifest.Place) {
			if o.rare != nil {
				out = append(out, o.rare.warnings.movedTo(at).all...)
			}
			if len(x.reviewed) > 0 {
				out = append(out, x.reviewed[o].movedTo(at).all...)
			}
		})
	}
	return append(out, x.skipped...)
}
