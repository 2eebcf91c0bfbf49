package source

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

// annotationDomain is the prefix of our annotations. Unknown names under it are
// reported, because they are most likely misspelt.
const annotationDomain = "nftproxy.dev/"

const (
	// annotationScheduler on a Service selects how new connections are spread over
	// the endpoints: round-robin, random or source-hash. The default is the
	// scheduler of the node.
	annotationScheduler = annotationDomain + "scheduler"

	// annotationWeight on an EndpointSlice or Endpoints object sets the shares of
	// new connections relative to the other endpoints, from 0 to 100. An endpoint
	// of weight 0 gets no new connections; the default is 1.
	//
	//	3                      every endpoint
	//	10.0.0.1=3,10.0.0.2=0  the endpoints with these addresses
	//	2,10.0.0.1=0           this one, and 2 for the others
	//
	// White space around numbers and addresses does not count.
	annotationWeight = annotationDomain + "weight"
)

func annotationField(name string) string { return "metadata.annotations[" + name + "]" }

// unknownAnnotations warns of annotations of the domain other than known, which
// is the one for the kind of object; empty: there is none.
func (f *findings) unknownAnnotations(m *metav1.ObjectMeta, known string) {
	problem := "has no effect: there are no annotations " + annotationDomain + " for this kind of object"
	if known != "" {
		problem = "has no effect: the annotation for this kind of object is " + strconv.Quote(known)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Annotations)) {
		if strings.HasPrefix(name, annotationDomain) && name != known {
			f.warn(annotationField(name), nil, problem)
		}
	}
}

// scheduler reads the scheduler of a Service.
func (f *findings) scheduler(m *metav1.ObjectMeta) model.Scheduler {
	text, given := m.Annotations[annotationScheduler]
	if !given {
		return model.DefaultScheduler
	}
	s, err := model.ParseScheduler(text)
	if err != nil {
		f.warn(annotationField(annotationScheduler), text,
			"is unknown: the default is used; "+oneOf("round-robin", "random", "source-hash"))
	}
	return s
}
