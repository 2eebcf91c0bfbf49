package source

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

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
