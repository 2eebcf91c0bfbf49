package bundle

import (
	"regexp"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Subject is a Service that a node has named: its names are names of objects, so that they can be parts
// of paths. Only [ParseSubject] makes one.
type Subject struct{ namespace, name string }

// label is a name of a namespace (RFC 1123), and subdomain one of an object. Kubernetes limits their bytes.
var (
	label     = regexp.MustCompile(`^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\z`)
	subdomain = regexp.MustCompile(`^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\z`)
)

const maxLabel, maxSubdomain = 63, 253

// ParseSubject parses the object of a problem. It returns false for other kinds, and for names that no
// object can have.
func ParseSubject(object string) (Subject, bool) {
	names, ok := strings.CutPrefix(object, model.ServiceName{}.Object().Kind+" ")
	namespace, name, qualified := strings.Cut(names, "/")
	valid := len(namespace) <= maxLabel && label.MatchString(namespace) && len(name) <= maxSubdomain && subdomain.MatchString(name)
	if !ok || !qualified || !valid {
		return Subject{}, false
	}
	return Subject{namespace, name}, true
}

// Namespace returns the namespace.
func (s Subject) Namespace() string { return s.namespace }

// Name returns the name in the namespace.
func (s Subject) Name() string { return s.name }

// Path returns both, as a relative path.
func (s Subject) Path() string { return s.namespace + "/" + s.name }
