package source

import (
	"fmt"
	"maps"
	"net/netip"
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

	// annotationClientAddresses on a Service says whether endpoints see the addresses
	// of clients: keep or masquerade. The default depends on the kind of frontend and
	// on the policies (table 4-A).
	annotationClientAddresses = annotationDomain + "client-addresses"

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
// are those for the kind of object.
func (f *findings) unknownAnnotations(m *metav1.ObjectMeta, known ...string) {
	if len(m.Annotations) == 0 {
		return
	}
	problem := "has no effect: there are no annotations " + annotationDomain + " for this kind of object"
	switch len(known) {
	case 0:
	case 1:
		problem = "has no effect: the annotation for this kind of object is " + strconv.Quote(known[0])
	default:
		problem = "has no effect: the annotations for this kind of object are " + quoted(known, "and")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Annotations)) {
		if strings.HasPrefix(name, annotationDomain) && !slices.Contains(known, name) {
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

// clientAddresses reads whether endpoints see the addresses of clients.
func (f *findings) clientAddresses(m *metav1.ObjectMeta) model.ClientAddresses {
	text, given := m.Annotations[annotationClientAddresses]
	if !given {
		return model.DefaultClientAddresses
	}
	c, err := model.ParseClientAddresses(text)
	if err != nil {
		f.warn(annotationField(annotationClientAddresses), text, "is unknown: the default is used; "+oneOf("keep", "masquerade"))
	}
	return c
}

const maxWeight = 100

// others is the key for all addresses that a list of weights does not name.
var others netip.Addr

// weigh sets the weights of the hosts in the slices of an object. Wrong entries
// are ignored.
func (f *findings) weigh(m *metav1.ObjectMeta, all ...*model.EndpointSlice) {
	text, given := m.Annotations[annotationWeight]
	if !given {
		return
	}
	hosts := make(map[netip.Addr][]*model.Host)
	for _, s := range all {
		for i := range s.Hosts {
			h := &s.Hosts[i]
			hosts[h.Address] = append(hosts[h.Address], h)
		}
	}
	weights := f.weights(text, hosts)
	for a, same := range hosts {
		w, given := weights[a]
		if !given {
			w, given = weights[others]
		}
		for _, h := range same {
			h.Weight, h.Drain = w, given && w == 0
		}
	}
}

// weights reads the list of weights.
func (f *findings) weights(text string, hosts map[netip.Addr][]*model.Host) map[netip.Addr]uint16 {
	out := make(map[netip.Addr]uint16)
	for i, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		a, w, problem := parseWeight(entry)
		_, twice := out[a]
		switch {
		case problem != "":
		case a == others && i > 0:
			problem = fmt.Sprintf("a number for all the others comes first: move it there, or write it like 10.0.0.1=%d", w)
		case a != others && len(hosts[a]) == 0:
			problem = fmt.Sprintf("no endpoint here has the address %s", a)
		case twice:
			problem = fmt.Sprintf("%s has a weight already: give each address once", a)
		default:
			out[a] = w
			continue
		}
		f.warn(annotationField(annotationWeight), entry, "is not used: "+problem)
	}
	return out
}

// parseWeight reads an entry such as "10.0.0.1=3", or "3" for the others.
func parseWeight(entry string) (netip.Addr, uint16, string) {
	a, number := others, entry
	if before, after, found := strings.Cut(entry, "="); found {
		text := strings.TrimSpace(before)
		var problem string
		if a, problem = parseAddress(text); problem != "" {
			return others, 0, fmt.Sprintf("%q %s", text, problem)
		}
		number = strings.TrimSpace(after)
	}
	w, err := strconv.ParseUint(number, 10, 16)
	if err != nil || w > maxWeight {
		return others, 0, fmt.Sprintf("%q is not a weight: use 0 to %d", number, maxWeight)
	}
	return a, uint16(w), ""
}
