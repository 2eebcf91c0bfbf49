package convert

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// listAnnotations are the annotations that are lists, and what an entry looks like.
var listAnnotations = []struct {
	name, right, wrong string
	slice              bool // of slices; otherwise, of Services
}{
	{setting.Ports.Annotation, "80", "x", false},
	{setting.AllowedClients.Annotation, "10.0.0.1", "x", false},
	{setting.DeniedClients.Annotation, "10.0.0.1", "x", false},
	{AnnotationWeight, "10.0.0.1=1", "x", true},
	{AnnotationPriority, "10.0.0.1=1", "x", true},
}

// annotated converts an object that has an annotation.
func annotated(name, text string, slice bool) []*manifest.FieldError {
	meta := metav1.ObjectMeta{Name: "web", Annotations: map[string]string{name: text}}
	if slice {
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
		_, found := EndpointSlice(&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: "IPv4",
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}})
		return found
	}
	_, found := Service(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}, "")
	return found
}

// TestLongLists: a list of wrong entries does not make as many findings, and entries beyond
// the limit are not read.
func TestLongLists(t *testing.T) {
	for _, c := range listAnnotations {
		found := annotated(c.name, strings.Repeat(c.wrong+",", 999)+c.wrong, c.slice)
		want := fmt.Sprintf("%s: has %d more wrong entries", annotationField(c.name), 1000-budget.WrongEntries)
		i := slices.IndexFunc(found, func(e *manifest.FieldError) bool { return e.Error() == want })
		if i != budget.WrongEntries || len(found) > budget.WrongEntries+2 {
			t.Errorf("%s: %d findings, %q is number %d", c.name, len(found), want, i)
		}

		long := c.right + strings.Repeat(",", budget.ListEntries-1)
		is := func(e *manifest.FieldError) bool { return strings.Contains(e.Error(), "has more than 32768 entries") }
		if found := annotated(c.name, long+"x", c.slice); slices.ContainsFunc(found, is) {
			t.Errorf("%s: %q at the limit", c.name, sourcetest.Texts(found))
		}
		found = annotated(c.name, long+","+c.right, c.slice)
		if c.name != setting.AllowedClients.Annotation && c.name != setting.DeniedClients.Annotation {
			is = func(e *manifest.FieldError) bool { return strings.Contains(e.Error(), "more wrong entries") } // empty ones are wrong
		}
		if !slices.ContainsFunc(found, is) {
			t.Errorf("%s: %q beyond the limit", c.name, sourcetest.Texts(found))
		}
	}
}

// 4.78: what is beyond the limit admits no client.
func TestLongListsOfClients(t *testing.T) {
	var f Findings
	long := strings.Repeat(",", budget.ListEntries) + "10.0.0.1"
	s := f.readSources(&metav1.ObjectMeta{Annotations: map[string]string{setting.AllowedClients.Annotation: long, setting.DeniedClients.Annotation: long}})
	if !s.Limited || len(s.Allowed) > 0 || fmt.Sprint(s.Denied) != fmt.Sprint(everyClient) {
		t.Errorf("%+v", s)
	}
}

// TestManyUnknownAnnotations: 256 KiB hold 15,000 names, and each is compared with those that
// there are before it is reported.
func TestManyUnknownAnnotations(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "web", Annotations: make(map[string]string)}
	for i := range 15_000 {
		meta.Annotations[fmt.Sprintf("%sx%d", setting.Domain, i)] = ""
	}
	_, found := Service(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}, "")
	want := fmt.Sprintf("metadata.annotations: has %d more that are unknown, and have no effect", 15_000-budget.WrongEntries)
	if len(found) != budget.WrongEntries+1 || found[budget.WrongEntries].Error() != want {
		t.Errorf("%d findings, %q", len(found), sourcetest.Texts(found))
	}
}

// TestJoinedRanges compares ranges that overlap in any way with the ports that their
// entries have, one by one.
func TestJoinedRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var entries []string
		for range random.IntN(12) + 1 {
			first := random.IntN(30) + 1
			last := first + random.IntN(2)*random.IntN(6)
			entries = append(entries, fmt.Sprintf("%d-%d/%s", first, last, model.Protocol(random.IntN(2)+int(model.TCP))))
			if random.IntN(4) == 0 {
				entries[len(entries)-1] += ":7"
			}
		}
		text := strings.Join(entries, ",")
		s, _ := withPorts(text)
		if got, want := portsOfRanges(s.Extra().Ranges), portsOfEntries(text); got != want {
			t.Fatalf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// portsOfRanges lists the ports of ranges, and where they lead to.
func portsOfRanges(all []model.PortRange) string {
	var out []string
	for _, r := range all {
		for n := int(r.Port); n <= max(int(r.Port), int(r.Last)); n++ {
			out = append(out, fmt.Sprintf("%t %s %03d:%d", r.Last != 0, r.Protocol, n, r.Target))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// portsOfEntries is portsOfRanges for the entries of a list: those that are ranges and those
// that are ports are apart, and an entry that has a port of another one with another
// destination is not used.
func portsOfEntries(text string) string {
	type port struct {
		inRange  bool
		protocol model.Protocol
		number   uint16
	}
	targets := make(map[port]uint16)
	for entry := range strings.SplitSeq(text, ",") {
		all, problem := parsePortRange(entry)
		each := func(f func(p port, target uint16)) {
			for _, r := range all {
				for n := int(r.Port); n <= max(int(r.Port), int(r.Last)); n++ {
					f(port{r.Last != 0, r.Protocol, uint16(n)}, r.Target)
				}
			}
		}
		each(func(p port, target uint16) {
			if before, taken := targets[p]; taken && before != target {
				problem = cmp.Or(problem, "contradicts")
			}
		})
		if problem == "" {
			each(func(p port, target uint16) { targets[p] = target })
		}
	}
	var out []string
	for p, target := range targets {
		out = append(out, fmt.Sprintf("%t %s %03d:%d", p.inRange, p.protocol, p.number, target))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
