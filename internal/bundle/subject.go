package bundle

import (
	"regexp"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Subject is a Service that a node has named: its names are names of objects, so that they can be parts
// of paths. Only [NewSubject] makes one.
type Subject struct{ namespace, name string }

// label is a name of a namespace (RFC 1123), and subdomain one of an object. Kubernetes limits their bytes.
var (
	label     = regexp.MustCompile(`^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\z`)
	subdomain = regexp.MustCompile(`^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\z`)
)

const maxLabel, maxSubdomain = 63, 253

// NewSubject returns the Service that an object of a problem is. It returns false for other kinds, and for names that no
// object can have.
func NewSubject(o model.Object) (Subject, bool) {
	valid := len(o.Namespace) <= maxLabel && label.MatchString(o.Namespace) && len(o.Name) <= maxSubdomain && subdomain.MatchString(o.Name)
	if o.Kind != (model.ServiceName{}).Object().Kind || !valid {
		return Subject{}, false
	}
	return Subject{o.Namespace, o.Name}, true
}

// Namespace returns the namespace.
func (s Subject) Namespace() string { return s.namespace }

// Name returns the name in the namespace.
func (s Subject) Name() string { return s.name }

// Path returns both, as a relative path.
func (s Subject) Path() string { return s.namespace + "/" + s.name }
