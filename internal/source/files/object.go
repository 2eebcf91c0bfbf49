package files

import (
	"encoding/json"
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// object is one object of a file, converted. Once it is read, it does not change. A file may have
// hundreds of thousands, so the fields that few of them need are apart.
type object struct {
	manifest.Place
	id   model.Object // without a name, only the kind is known
	kind *kind        // nil: none that is read

	service *model.Service
	slices  []*model.EndpointSlice
	rare    *details // nil: it has none

	// fromServer is set if the object was read from an API server, and selects if the
	// Service has a selector.
	fromServer, selects bool
	// portLines are the lines of the ports, and linkLine the one of the selector of a Service or of the
	// label of a slice, for warnings after all objects are known; zero: unknown.
	portLines []int
	linkLine  int
}

// details are the fields that few objects need.
type details struct {
	other string // the kind of an object that is skipped
	node  *model.Node
	cidrs []netip.Prefix

	pool     *balance.Pool
	defaults *balance.Defaults
	waiting  *waiting  // a Balance that depends on other objects
	with     []*object // the ones that it was resolved with

	// manifests are the objects of Kubernetes that it consists of, and given is the object as it is
	// written, if these are kept.
	manifests []any
	given     json.RawMessage

	problems manifest.Errors
	warnings manifest.Errors // about the object alone; the review adds others
}

// rareDetails returns the fields that few objects need, to be read.
func (o *object) rareDetails() details {
	if o.rare == nil {
		return details{}
	}
	return *o.rare
}

// editDetails returns the same, to be changed while the object is read.
func (o *object) editDetails() *details {
	if o.rare == nil {
		o.rare = new(details)
	}
	return o.rare
}

func (o *object) addProblems(problems manifest.Errors) {
	if len(problems) > 0 {
		o.editDetails().problems = append(o.editDetails().problems, problems...)
	}
}

// is reports whether an object is of a kind that is read.
func (o *object) is(kind string) bool { return o.kind != nil && o.kind.name == kind }

// serviceOf returns the name of the Service to which the slices of an object belong.
func (o *object) serviceOf() (name model.ServiceName, ok bool) {
	if len(o.slices) == 0 {
		return name, false
	}
	return o.slices[0].ServiceName(), true
}

func (o *object) portLine(i int) int {
	if i < len(o.portLines) {
		return o.portLines[i]
	}
	return 0
}
