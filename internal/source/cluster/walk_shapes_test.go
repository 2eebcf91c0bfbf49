package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// Sizes that an API server lets through.
const (
	walkAnnotations = 256<<10 - 64 // bytes of all annotations; the rest is for the names
	walkObject      = 1_500_000    // bytes of an object
	walkPorts       = 15_000       // that fit into a Service
	walkEndpoints   = 1000         // of a slice
	walkSlicePorts  = 20_000       // of a slice
	walkSlices      = 100          // of a Service
)

// textShape makes a hostile text of a size.
type textShape struct {
	name string
	text func(size int) string
}

// repeated is a text of the same words.
func repeated(word string) func(int) string {
	return func(size int) string { return strings.Repeat(word, size/len(word)) }
}

// sized returns the shape with its text of each size made once, for all annotations.
func (s textShape) sized() textShape {
	texts := make(map[int]string)
	return textShape{s.name, func(size int) string {
		text, ok := texts[size]
		if !ok {
			text = s.text(size)
			texts[size] = text
		}
		return text
	}}
}

// different is a text of as many different entries as fit.
func different(format func(i int) string) func(int) string {
	return func(size int) string {
		var b strings.Builder
		for i := 0; ; i++ {
			entry := format(i)
			if b.Len()+len(entry)+1 > size {
				return b.String()
			}
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(entry)
		}
	}
}

// textShapes are for every annotation. A text that is right for one is wrong for others.
var textShapes = []textShape{
	{"a sentence", repeated("lorem ipsum ")},
	{"one word", repeated("a")},
	{"one number", repeated("9")},
	{"white space", repeated(" \t\n")},
	{"commas", repeated(",")},
	{"the same entry", repeated("a,")},
	{"quotes and control characters", repeated("\"\x00\u2028\\'\x7f,")},
	{"bytes that are not UTF-8", repeated("\xff\xfe")},
	{"numbers", different(func(i int) string { return fmt.Sprint(1 + i%65535) })},
	{"rates", repeated("1/second burst 1 ")},
	{"addresses", different(walkAddress)},
	{"addresses of IPv6", different(func(i int) string { return fmt.Sprintf("fd00::%x", i) })},
	{"nested prefixes", different(func(i int) string { return fmt.Sprintf("10.%d.%d.0/%d", i>>8&255, i&255, 8+i%17) })},
	{"all prefixes", repeated("0.0.0.0/0,::/0,")},
	{"ranges of addresses", different(func(i int) string { return walkAddress(i) + "-10.255.255.255" })},
	{"numbers of addresses", different(func(i int) string { return fmt.Sprintf("%s=%d", walkAddress(i%walkEndpoints), i%101) })},
	{"overlapping ranges", different(func(i int) string { return fmt.Sprintf("%d-%d", 1+i%30_000, 65_535-i%30_000) })},
	{"ranges with a target", different(func(i int) string { return fmt.Sprintf("%d-%d/udp:%d", 1+2*i%60_000, 2+2*i%60_000, 1+i) })},
	{"ranges to ranges", different(func(i int) string { return fmt.Sprintf("%d-%d:%d-%d", 1+i, 1000+i, 2+i, 1001+i) })},
	{"every port", repeated("all/udp,all,")},
	{"items without end", repeated("[")},
	{"nested items", func(size int) string { return strings.Repeat("[", size/2) + strings.Repeat("]", size/2) }},
	{"nested mappings", repeated("{a: ")},
	{"keys", func(size int) string { return sourcetest.ManyKeys(size / 6) }},
	{"keys, and aliases", func(size int) string {
		return "- &a " + sourcetest.ManyKeys(size/8) + "\n" + strings.Repeat("- *a\n", 12)
	}},
	{"doubling aliases", func(int) string { return "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: &d [*c,*c]" }},
}

// walkCases are all cases: every annotation in every shape, alone and together, every list of
// the objects, and Services with many slices.
func walkCases(t *testing.T) (out []walkCase) {
	for _, s := range textShapes {
		s = s.sized()
		for _, name := range setting.Annotations() {
			out = append(out, withAnnotations(s, serviceWith, 1, name))
		}
		for _, name := range append([]string{convert.AnnotationCiliumWeight}, convert.SliceAnnotations...) {
			out = append(out, withAnnotations(s, sliceWith, 1, name))
		}
		out = append(out, withAnnotations(s, serviceWith, len(setting.Annotations()), setting.Annotations()...),
			withAnnotations(s, sliceWith, len(convert.SliceAnnotations), convert.SliceAnnotations...))
	}
	out = append(out, manyPorts()...)
	out = append(out, unknownAnnotations()...)
	out = append(out, listCases(t)...)
	return append(out, manySlices()...)
}

// withAnnotations returns the case of an object with such annotations.
func withAnnotations(s textShape, object func(map[string]string) walked, share int, names ...string) walkCase {
	field := "`" + names[0] + "`"
	if share > 1 {
		field = fmt.Sprintf("all %d annotations of %s", share, object(nil).kind())
	}
	return walkCase{field, s.name, func() walked {
		given := make(map[string]string, len(names))
		for _, name := range names {
			given[name] = s.text(walkAnnotations / share)
		}
		return object(given)
	}}
}

func (o walked) kind() string {
	if len(o.slices) == 1 && len(o.slices[0].Endpoints) == walkEndpoints {
		return "an EndpointSlice"
	}
	return "a Service"
}

func serviceWith(annotations map[string]string) walked {
	s := walkService()
	s.Annotations = annotations
	return walked{service: s, slices: []*discoveryv1.EndpointSlice{walkSlice("web", 0, 4)}}
}

func sliceWith(annotations map[string]string) walked {
	s := walkSlice("web", 0, walkEndpoints)
	s.Annotations = annotations
	return walked{service: walkService(), slices: []*discoveryv1.EndpointSlice{s}}
}

// manyPorts are annotations of a Service that has many ports, to which they may apply.
func manyPorts() (out []walkCase) {
	for _, s := range textShapes {
		if s.name == "the same entry" || s.name == "overlapping ranges" {
			c := withAnnotations(s, serviceWith, len(setting.Annotations()), setting.Annotations()...)
			out = append(out, walkCase{"all annotations of a Service of 15,000 ports", s.name, func() walked {
				o := c.build()
				o.service.Spec.Ports = largeService(walkPorts).Spec.Ports
				return o
			}})
		}
	}
	return out
}

// unknownAnnotations are names that are compared with those that are known.
func unknownAnnotations() (out []walkCase) {
	for shape, name := range map[string]func(i int) string{
		"short names":   func(i int) string { return setting.Domain + fmt.Sprint(i) },
		"similar names": func(i int) string { return setting.Scheduler.Annotation + fmt.Sprint(i) },
		"long names":    func(i int) string { return setting.Domain + fmt.Sprintf("%063d", i) },
		"other domains": func(i int) string { return fmt.Sprintf("example.com/%d", i) },
	} {
		build := func(object func(map[string]string) walked) func() walked {
			return func() walked {
				given := make(map[string]string)
				for i, size := 0, 0; size < walkAnnotations; i++ {
					given[name(i)] = ""
					size += len(name(i))
				}
				return object(given)
			}
		}
		out = append(out, walkCase{"unknown annotations of a Service", shape, build(serviceWith)},
			walkCase{"unknown annotations of an EndpointSlice", shape, build(sliceWith)},
			walkCase{"unknown annotations of a Node", shape, build(nodeWith)})
	}
	return out
}

func nodeWith(annotations map[string]string) walked {
	n := walkNode()
	n.Annotations = annotations
	return walked{node: n}
}

// manySlices are the endpoints of a Service at the sizes of its slices.
func manySlices() (out []walkCase) {
	for shape, set := range map[string]func(s *discoveryv1.EndpointSlice, i, j int){
		"different addresses": func(*discoveryv1.EndpointSlice, int, int) {},
		"the same addresses":  func(s *discoveryv1.EndpointSlice, _, j int) { s.Endpoints[j].Addresses[0] = walkAddress(j) },
		"one address":         func(s *discoveryv1.EndpointSlice, _, j int) { s.Endpoints[j].Addresses[0] = "10.0.0.1" },
		"a node and zones each": func(s *discoveryv1.EndpointSlice, i, j int) {
			e, node := &s.Endpoints[j], fmt.Sprintf("node-%d", 1000*i+j)
			e.NodeName, e.Hints = &node, &discoveryv1.EndpointHints{}
			for z := range 8 {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: fmt.Sprintf("zone-%d-%d-%d", i, j, z)})
			}
		},
		"conditions of all kinds": func(s *discoveryv1.EndpointSlice, i, j int) {
			ready, serving, terminating := j&1 > 0, j&2 > 0, j&4 > 0
			s.Endpoints[j].Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
		},
		"different weights": func(s *discoveryv1.EndpointSlice, i, _ int) {
			s.Annotations = map[string]string{convert.AnnotationWeight: fmt.Sprint(1 + i), convert.AnnotationPriority: fmt.Sprint(i % 10)}
		},
	} {
		out = append(out, walkCase{"100 slices of 1,000 endpoints", shape, func() walked {
			o := walked{service: walkService()}
			o.service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			for i := range walkSlices {
				s := walkSlice("web", i, walkEndpoints)
				for j := range s.Endpoints {
					set(s, i, j)
				}
				o.slices = append(o.slices, s)
			}
			return o
		}})
	}
	return out
}
