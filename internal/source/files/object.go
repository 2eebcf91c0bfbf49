package files

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// object is one object of a file, converted. There is one for each object that `nftproxy run`
// serves, so it has no more than nearly all of them need. It does not change: lines count from
// the line of the part that it is in, which an edit above moves.
type object struct {
	service *model.Service
	one     [1]*model.EndpointSlice // unless there are several
	rare    *details                // nil: nothing of these
	line    int32
	// port is the line of the first port, and link the line of the selector of a Service or of
	// the label of a slice, for warnings after all objects are known; -1: there is none.
	port, link int32
	kind       int8 // of kinds; -1: none
	// fromServer is set if the object was read from an API server, and selects if the
	// Service has a selector.
	fromServer, selects bool
}

// details are what few objects have.
type details struct {
	id     model.Object           // of an object without values that tell it
	slices []*model.EndpointSlice // if there are several
	node   *model.Node
	cidrs  []netip.Prefix
	other  string  // the kind of an object that is skipped
	ports  []int32 // the lines of all ports, if there are several
	// manifests are the objects of Kubernetes that it consists of, if these are kept.
	manifests []any
	given     json.RawMessage // the object, if these are kept
	problems  manifest.Errors
	warnings  noted // of the object alone; the review adds others
	pool      *balance.Pool
	defaults  *balance.Defaults
	waiting   *waiting // a Balance that depends on others
	with      *uses    // on these; nil: it is not resolved yet
}

// draft is an object that is being read.
type draft struct {
	manifest.Place
	id        model.Object // without a name, only the kind is known
	other     string
	service   *model.Service
	slices    []*model.EndpointSlice
	node      *model.Node
	manifests []any
	given     json.RawMessage
	cidrs     []netip.Prefix
	problems  manifest.Errors
	warnings  manifest.Errors

	pool     *balance.Pool
	defaults *balance.Defaults
	waiting  *waiting
	with     *uses

	fromServer, selects bool

	portLines []int
	linkLine  int // zero: there is none
}

// object returns the object, of a part that begins at a place.
func (o *draft) object(at manifest.Place) *object {
	relative := func(line int) int32 { return int32(line - at.Line) }
	out := &object{
		service: o.service, line: relative(o.Line), port: -1, link: -1,
		kind: kindOf(o.id.Kind), fromServer: o.fromServer, selects: o.selects,
	}
	if o.linkLine > 0 {
		out.link = relative(o.linkLine)
	}
	rare := details{node: o.node, cidrs: o.cidrs, other: o.other, manifests: o.manifests, given: o.given, problems: o.problems,
		pool: o.pool, defaults: o.defaults, waiting: o.waiting, with: o.with}
	if len(o.portLines) > 0 {
		out.port = relative(o.portLines[0])
	}
	if len(o.portLines) > 1 {
		for _, line := range o.portLines {
			rare.ports = append(rare.ports, relative(line))
		}
	}
	if len(o.slices) == 1 {
		out.one[0] = o.slices[0]
	} else {
		rare.slices = o.slices
	}
	if len(o.warnings) > 0 {
		rare.warnings = noted{at, o.warnings}
	}
	if out.id() != o.id {
		rare.id = o.id
	}
	if !rare.empty() {
		kept := rare // else it is on the heap in any case
		out.rare = &kept
	}
	return out
}

func (d *details) empty() bool {
	return d.id == model.Object{} && d.node == nil && d.other == "" && d.given == nil &&
		d.pool == nil && d.defaults == nil && d.waiting == nil &&
		len(d.slices)+len(d.cidrs)+len(d.ports)+len(d.manifests)+len(d.problems)+len(d.warnings.all) == 0
}

// details returns what few objects have.
func (o *object) details() details {
	if o.rare == nil {
		return details{}
	}
	return *o.rare
}

// id returns the object's reference. Without a name, only the kind is known.
func (o *object) id() model.Object {
	switch {
	case o.rare != nil && o.rare.id != model.Object{}:
		return o.rare.id
	case o.is(balance.Kind) && o.service != nil:
		return o.service.Name.BalanceObject()
	case o.service != nil:
		return o.service.Name.Object()
	case o.one[0] != nil:
		return model.Object{Kind: "EndpointSlice", Namespace: o.one[0].Namespace, Name: o.one[0].Name}
	}
	return model.Object{}
}

// is reports whether an object is of a kind that is read.
func (o *object) is(kind string) bool { return o.kind >= 0 && kinds[o.kind].name == kind }

// slices returns the EndpointSlices. The caller must not modify them.
func (o *object) slices() []*model.EndpointSlice {
	if o.one[0] != nil {
		return o.one[:]
	}
	return o.details().slices
}

// serviceOf returns the name of the Service to which the slices of an object belong.
func (o *object) serviceOf() (name model.ServiceName, ok bool) {
	all := o.slices()
	if len(all) == 0 {
		return name, false
	}
	return all[0].ServiceName(), true
}

// waits reports whether an object is a Balance that depends on others.
func (o *object) waits() bool { return o.rare != nil && o.rare.waiting != nil }

func (o *object) hasProblems() bool { return o.rare != nil && len(o.rare.problems) > 0 }

// ownProblems returns the problems of an object, at its present place.
func (l located) ownProblems() manifest.Errors {
	switch {
	case l.rare == nil:
		return nil
	case !l.waits():
		return l.rare.problems
	}
	return noted{l.rare.waiting.at, l.rare.problems}.movedTo(l.at).all
}

// portLine returns the line of a port; -1: unknown.
func (o *object) portLine(i int) int32 {
	if i == 0 {
		return o.port
	}
	if more := o.details().ports; i < len(more) {
		return more[i]
	}
	return -1
}

// noted are warnings about an object whose part was at a place.
type noted struct {
	at  manifest.Place
	all manifest.Errors
}

// movedTo returns the warnings of a part that is elsewhere now.
func (n noted) movedTo(at manifest.Place) noted {
	if n.at == at || len(n.all) == 0 {
		return n
	}
	out := noted{at, slices.Clone(n.all)}
	for i, e := range n.all {
		moved := *e
		moved.Document = at.Document
		moved.Item += at.Item - n.at.Item
		moved.Line += at.Line - n.at.Line
		out.all[i] = &moved
	}
	return out
}
