package convert

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

func TestScheduler(t *testing.T) {
	const unknown = ` is unknown: use "round-robin", "random", "source-hash", "maglev" or "maglev-port"; the default applies`
	run(t, `{metadata: {name: web, namespace: default}, spec: {clusterIP: 10.96.0.1}}`, []conversion{
		{"round-robin", `metadata: {annotations: {nftproxy.dev/scheduler: round-robin}}`, simple + fmt.Sprintln("Scheduler", model.RoundRobin), nil},
		{"random", `metadata: {annotations: {nftproxy.dev/scheduler: random}}`, simple + fmt.Sprintln("Scheduler", model.Random), nil},
		{"source-hash", `metadata: {annotations: {nftproxy.dev/scheduler: source-hash}}`, simple + fmt.Sprintln("Scheduler", model.SourceHash), nil},
		{"maglev", `metadata: {annotations: {nftproxy.dev/scheduler: maglev}}`, simple + fmt.Sprintln("Scheduler", model.Maglev), nil},
		{"maglev-port", `metadata: {annotations: {nftproxy.dev/scheduler: maglev-port}}`, simple + fmt.Sprintln("Scheduler", model.MaglevPort), nil},
		{"others' annotations", `metadata: {annotations: {example.com/scheduler: x, scheduler: y, nftproxy.device/scheduler: z}}`, simple, nil},
		{"unknown", `metadata: {annotations: {nftproxy.dev/scheduler: least-conn}}`, simple,
			[]string{`warning: metadata.annotations[nftproxy.dev/scheduler]: "least-conn" is unknown: the kernel's rules do not count the open connections of an endpoint; use "round-robin", with weights for unequal endpoints; the default applies`}},
		{"empty", `metadata: {annotations: {nftproxy.dev/scheduler: ""}}`, simple,
			[]string{`warning: metadata.annotations[nftproxy.dev/scheduler]: ""` + unknown}},
		{"in capitals", `metadata: {annotations: {nftproxy.dev/scheduler: Random}}`, simple,
			[]string{`warning: metadata.annotations[nftproxy.dev/scheduler]: "Random"` + unknown}},
		{"misspelt", `metadata: {annotations: {nftproxy.dev/sheduler: random, nftproxy.dev/: x, nftproxy.dev/weight: "3"}}`, simple, []string{
			`warning: metadata.annotations[nftproxy.dev/]: has no effect: there is no such annotation for this kind of object; docs/annotations.md lists those that there are`,
			`warning: metadata.annotations[nftproxy.dev/sheduler]: has no effect: there is no such annotation for this kind of object: did you mean scheduler?`,
			`warning: metadata.annotations[nftproxy.dev/weight]: has no effect: there is no such annotation for this kind of object; docs/annotations.md lists those that there are`}},
		{"1.2 not of another proxy's Services", `metadata: {labels: {service.kubernetes.io/service-proxy-name: other}, annotations: {nftproxy.dev/scheduler: x}}`, "", nil},
	}, func(s *corev1.Service) (any, []*manifest.FieldError) { return anyOf(Service(s, "")) })
}

// TestMaglevSize: 3.47. A wrong size is reported, and the default is used.
func TestMaglevSize(t *testing.T) {
	const field = "warning: metadata.annotations[nftproxy.dev/maglev-table-size]: "
	const wrong = " is not the size of a table: use 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521 or 131071; the default applies"
	for _, c := range []struct {
		name, size, scheduler string
		want                  uint32
		warning               string
	}{
		{"maglev", "251", "maglev", 251, ""},
		{"maglev-port", " 131071 ", "maglev-port", 131071, ""},
		{"default scheduler", "16381", "", 16381, ""},
		{"another scheduler", "251", "random", 251, field + "has no effect: it is for maglev and maglev-port, and the scheduler is random"},
		{"no prime", "1024", "maglev", 0, field + `"1024"` + wrong},
		{"too large", "1048573", "maglev", 0, field + `"1048573"` + wrong},
		{"zero", "0", "maglev", 0, field + `"0"` + wrong},
		{"negative", "-251", "maglev", 0, field + `"-251"` + wrong},
		{"modulo 2^32", "4294967547", "maglev", 0, field + `"4294967547"` + wrong},
		{"empty", "", "maglev", 0, field + `""` + wrong},
	} {
		s := corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: map[string]string{setting.MaglevSize.Annotation: c.size}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1"},
		}
		if c.scheduler != "" {
			s.Annotations[setting.Scheduler.Annotation] = c.scheduler
		}
		got, found := Service(&s, "")
		var want []string
		if c.warning != "" {
			want = []string{c.warning}
		}
		if got.Extra().MaglevSize != c.want || !slices.Equal(sourcetest.Texts(found), want) {
			t.Errorf("%s: size %d, %q; want %d, %q", c.name, got.Extra().MaglevSize, sourcetest.Texts(found), c.want, want)
		}
	}
}

// TestOnFailure: 9.28. Another value, and one without effect, are reported.
func TestOnFailure(t *testing.T) {
	const field = "warning: metadata.annotations[nftproxy.dev/on-failure]: "
	const noTCP = field + "has no effect: it is for TCP connections, and no port is of TCP"
	for _, c := range []struct {
		name, value, ports string
		protocol           corev1.Protocol
		want               model.OnFailure
		warning            string
	}{
		{"close", "close", "", corev1.ProtocolTCP, model.CloseOnFailure, ""},
		{"keep", "keep", "", corev1.ProtocolTCP, model.KeepOnFailure, ""},
		{"another value", "reset", "", corev1.ProtocolTCP, model.DefaultOnFailure, field + `"reset" is unknown: use "keep" or "close"; the default applies`},
		{"empty", "", "", corev1.ProtocolTCP, model.DefaultOnFailure, field + `"" is unknown: use "keep" or "close"; the default applies`},
		{"of UDP", "close", "", corev1.ProtocolUDP, model.CloseOnFailure, noTCP},
		{"a range of UDP", "close", "5000-5099/udp", corev1.ProtocolUDP, model.CloseOnFailure, noTCP},
		{"a range of TCP", "close", "5000-5099/tcp", corev1.ProtocolUDP, model.CloseOnFailure, ""},
		{"keep, of UDP", "keep", "", corev1.ProtocolUDP, model.KeepOnFailure, ""},
	} {
		s := corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: map[string]string{setting.OnFailure.Annotation: c.value}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80, Protocol: c.protocol}}},
		}
		if c.ports != "" {
			s.Annotations[setting.Ports.Annotation] = c.ports
		}
		var want []string
		if c.warning != "" {
			want = append(want, c.warning)
		}
		got, found := Service(&s, "")
		if got.Extra().OnFailure != c.want || !slices.Equal(sourcetest.Texts(found), want) {
			t.Errorf("%s: %s, %q; want %s, %q", c.name, got.Extra().OnFailure, sourcetest.Texts(found), c.want, want)
		}
	}
}

// TestCiliumWeight: 3.50. Cilium's annotation gives all endpoints of an object a weight,
// unless ours is there.
func TestCiliumWeight(t *testing.T) {
	const wrong = " is not used: it is not a weight: use 0 to 65535"
	run(t, `
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]`, []conversion{
		{"above our range", `metadata: {annotations: {service.cilium.io/weight: "65535"}}`, "10.0.0.1=65535 10.0.0.2=65535", nil},
		{"drained", `metadata: {annotations: {service.cilium.io/weight: "0"}}`, "10.0.0.1=0 10.0.0.2=0", nil},
		{"ours wins", `metadata: {annotations: {service.cilium.io/weight: "7", nftproxy.dev/weight: "10.0.0.1=3"}}`, "10.0.0.1=3 10.0.0.2=-", nil},
		{"ours wins, malformed", `metadata: {annotations: {service.cilium.io/weight: x, nftproxy.dev/weight: "3"}}`, "10.0.0.1=3 10.0.0.2=3", nil},
		{"too large", `metadata: {annotations: {service.cilium.io/weight: "65536"}}`, "10.0.0.1=- 10.0.0.2=-",
			[]string{`warning: metadata.annotations[service.cilium.io/weight]: "65536"` + wrong}},
		{"malformed", `metadata: {annotations: {service.cilium.io/weight: "1.5"}}`, "10.0.0.1=- 10.0.0.2=-",
			[]string{`warning: metadata.annotations[service.cilium.io/weight]: "1.5"` + wrong}},
		{"negative", `metadata: {annotations: {service.cilium.io/weight: "-1"}}`, "10.0.0.1=- 10.0.0.2=-",
			[]string{`warning: metadata.annotations[service.cilium.io/weight]: "-1"` + wrong}},
		{"empty", `metadata: {annotations: {service.cilium.io/weight: ""}}`, "10.0.0.1=- 10.0.0.2=-",
			[]string{`warning: metadata.annotations[service.cilium.io/weight]: ""` + wrong}},
	}, func(s *discoveryv1.EndpointSlice) (any, []*manifest.FieldError) {
		out, found := EndpointSlice(s)
		var weights []string
		for _, h := range out.Hosts {
			weights = append(weights, h.Address.String()+"="+printWeight(&h))
		}
		return []string{strings.Join(weights, " ")}, found
	})
}

// TestWeights reads lists of weights for a slice with three endpoints, of which
// the last two have the same address.
func TestWeights(t *testing.T) {
	const field = "warning: metadata.annotations[nftproxy.dev/weight]: "
	for _, c := range []struct {
		name, text string
		want       string // weights of the two addresses; - where none is given
		errors     []string
	}{
		{"every endpoint", "3", "3 3", nil},
		{"0 drains", "0", "0 0", nil},
		{"the highest", "100", "100 100", nil},
		{"leading zeros", "010", "10 10", nil},
		{"by address", "10.0.0.1=3,10.0.0.2=0", "3 0", nil},
		{"one address", "10.0.0.2=1", "- 1", nil},
		{"number for the others", "2,10.0.0.1=0", "0 2", nil},
		{"white space", " 2 ,\t10.0.0.1 = 3 \n", "3 2", nil},
		{"1.33 leading zeros in an address", "10.0.0.01=3", "3 -", nil},
		{"1.35 IPv4-mapped", "::ffff:10.0.0.1=3", "3 -", nil},
		{"above 100", "101", "- -", []string{`"101" is not used: "101" is not a weight: use 0 to 100`}},
		{"far above 100", "10.0.0.1=99999999999999999999", "- -", []string{
			`"10.0.0.1=99999999999999999999" is not used: "99999999999999999999" is not a weight: use 0 to 100`}},
		{"below 0", "10.0.0.1=-1,10.0.0.2=5", "- 5", []string{`"10.0.0.1=-1" is not used: "-1" is not a weight: use 0 to 100`}},
		{"not whole", "1.5", "- -", []string{`"1.5" is not used: "1.5" is not a weight: use 0 to 100`}},
		{"not a number", "2,10.0.0.1=heavy", "2 2", []string{`"10.0.0.1=heavy" is not used: "heavy" is not a weight: use 0 to 100`}},
		{"no number", "10.0.0.1=", "- -", []string{`"10.0.0.1=" is not used: "" is not a weight: use 0 to 100`}},
		{"nothing", "", "- -", []string{`"" is not used: "" is not a weight: use 0 to 100`}},
		{"comma at the end", "10.0.0.1=3,", "3 -", []string{`"" is not used: "" is not a weight: use 0 to 100`}},
		{"no address", "=3", "- -", []string{`"=3" is not used: ""` + notAnIP}},
		{"not an address", "web=3", "- -", []string{`"web=3" is not used: "web"` + notAnIP}},
		{"a range", "10.0.0.0/24=3", "- -", []string{
			`"10.0.0.0/24=3" is not used: "10.0.0.0/24" is a range, not an IP address: leave out the part from '/' on`}},
		{"an address that is not there", "10.0.0.9=3,10.0.0.1=4", "4 -", []string{`"10.0.0.9=3" is not used: no endpoint here has the address 10.0.0.9`}},
		{"the other family", "fd00::1=3", "- -", []string{`"fd00::1=3" is not used: no endpoint here has the address fd00::1`}},
		{"an address twice", "10.0.0.1=3,10.0.0.2=4,010.0.0.1=5", "3 4", []string{
			`"010.0.0.1=5" is not used: 10.0.0.1 has a weight already: give each address once`}},
		{"an address again after a wrong entry", "10.0.0.1=x,10.0.0.1=5", "5 -", []string{
			`"10.0.0.1=x" is not used: "x" is not a weight: use 0 to 100`}},
		{"number not at the start", "10.0.0.1=3,2", "3 -", []string{
			`"2" is not used: a number for all the others comes first: move it there, or write it like 10.0.0.1=2`}},
		{"number twice", "2,3", "2 2", []string{
			`"3" is not used: a number for all the others comes first: move it there, or write it like 10.0.0.1=3`}},
		{"=> in place of =", "10.0.0.1=>3", "- -", []string{`"10.0.0.1=>3" is not used: ">3" is not a weight: use 0 to 100`}},
	} {
		for i := range c.errors {
			c.errors[i] = field + c.errors[i]
		}
		run(t, `
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}, {addresses: [10.0.0.02]}]`,
			[]conversion{{c.name, `metadata: {annotations: {nftproxy.dev/weight: ` + strconv.Quote(c.text) + `}}`, c.want, c.errors}},
			func(s *discoveryv1.EndpointSlice) (any, []*manifest.FieldError) {
				slice, found := EndpointSlice(s)
				hosts := slice.Hosts
				if second, third := printWeight(&hosts[1]), printWeight(&hosts[2]); second != third {
					t.Errorf("one address, two weights: %s and %s", second, third)
				}
				return []string{printWeight(&hosts[0]) + " " + printWeight(&hosts[1])}, found
			})
	}
}

func printWeight(h *model.Host) string {
	switch {
	case h.Drain && h.Weight > 0:
		return strconv.Itoa(int(h.Weight)) + " and drained"
	case h.Weight == 0 && !h.Drain:
		return "-"
	}
	return strconv.Itoa(int(h.Weight))
}

// TestPriorities: 3.23. The grammar is that of weights.
func TestPriorities(t *testing.T) {
	const field = "warning: metadata.annotations[nftproxy.dev/priority]: "
	for _, c := range []struct {
		name, text string
		want       string // priorities of the three addresses
		errors     []string
	}{
		{"every endpoint", "1", "1 1 1", nil},
		{"by address", "10.0.0.1=1,10.0.0.2=9", "1 9 0", nil},
		{"number for the others", "2,10.0.0.1=0", "0 2 2", nil},
		{"above 9", "10", "0 0 0", []string{`"10" is not used: "10" is not a priority: use 0 to 9`}},
		{"above 255", "10.0.0.1=257", "0 0 0", []string{`"10.0.0.1=257" is not used: "257" is not a priority: use 0 to 9`}},
		{"twice", "10.0.0.1=1,10.0.0.1=2", "1 0 0", []string{`"10.0.0.1=2" is not used: 10.0.0.1 has a priority already: give each address once`}},
		{"not there", "10.0.0.9=1", "0 0 0", []string{`"10.0.0.9=1" is not used: no endpoint here has the address 10.0.0.9`}},
	} {
		for i := range c.errors {
			c.errors[i] = field + c.errors[i]
		}
		run(t, `
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}, {addresses: [10.0.0.3]}]`,
			[]conversion{{c.name, `metadata: {annotations: {nftproxy.dev/weight: "5", nftproxy.dev/priority: ` + strconv.Quote(c.text) + `}}`, c.want, c.errors}},
			func(s *discoveryv1.EndpointSlice) (any, []*manifest.FieldError) {
				slice, found := EndpointSlice(s)
				var out []string
				for _, h := range slice.Hosts {
					out = append(out, strconv.Itoa(int(h.Priority)))
					if h.Weight != 5 {
						t.Errorf("the weight is %d", h.Weight)
					}
				}
				return []string{strings.Join(out, " ")}, found
			})
	}
}

func compare(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWeightsOfEndpoints finds addresses in all subsets and both families.
func TestWeightsOfEndpoints(t *testing.T) {
	run(t, `
metadata: {name: web}
subsets:
- addresses: [{ip: 10.0.0.1}, {ip: "fd00::1"}, {ip: 10.0.0.2}]
- addresses: [{ip: 10.0.0.1}]
  notReadyAddresses: [{ip: 10.0.0.3}]`, []conversion{
		{"every endpoint", `metadata: {annotations: {nftproxy.dev/weight: "5"}}`,
			"10.0.0.1=5 10.0.0.2=5 fd00::1=5 10.0.0.1=5 10.0.0.3=5", nil},
		{"by address", `metadata: {annotations: {nftproxy.dev/weight: "5, 10.0.0.1=0, FD00::1=2, 10.0.0.3=7, 10.0.0.4=1", nftproxy.dev/scheduler: random}}`,
			"10.0.0.1=0 10.0.0.2=5 fd00::1=2 10.0.0.1=0 10.0.0.3=7", []string{
				`warning: metadata.annotations[nftproxy.dev/scheduler]: has no effect: the annotations for this kind of object are "nftproxy.dev/weight" and "nftproxy.dev/priority"`,
				`warning: metadata.annotations[nftproxy.dev/weight]: "10.0.0.4=1" is not used: no endpoint here has the address 10.0.0.4`}},
		//lint:ignore SA1019 files may still hold Endpoints
	}, func(e *corev1.Endpoints) (any, []*manifest.FieldError) {
		out, found := Endpoints(e)
		var weights []string
		for _, s := range out {
			for _, h := range s.Hosts {
				weights = append(weights, h.Address.String()+"="+printWeight(&h))
			}
		}
		return []string{strings.Join(weights, " ")}, found
	})
}

// TestUnknownAnnotations has the kinds of objects without annotations of ours.
func TestUnknownAnnotations(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "a", Annotations: map[string]string{AnnotationWeight: "3", "example.com/weight": "3"}}
	want := []string{"warning: metadata.annotations[nftproxy.dev/weight]: has no effect: there are no annotations nftproxy.dev/ for this kind of object"}
	_, ofNode := Node(&corev1.Node{ObjectMeta: meta})
	compare(t, want, sourcetest.Texts(ofNode))
	_, ofCIDR := ServiceCIDR(&networkingv1.ServiceCIDR{ObjectMeta: meta})
	compare(t, want, sourcetest.Texts(ofCIDR))
}

// TestProxyName has 1.1 and 1.2 for proxies with and without a name.
func TestProxyName(t *testing.T) {
	for _, c := range []struct {
		proxy, labels string
		served        bool
	}{
		{"", `{}`, true},
		{"", `{service.kubernetes.io/service-proxy-name: ""}`, false},
		{"", `{service.kubernetes.io/service-proxy-name: mine}`, false},
		{"mine", `{}`, false},
		{"mine", `{service.kubernetes.io/service-proxy-name: ""}`, false},
		{"mine", `{service.kubernetes.io/service-proxy-name: mine}`, true},
		{"mine", `{service.kubernetes.io/service-proxy-name: Mine}`, false},
		{"mine", `{service.kubernetes.io/service-proxy-name: mine2}`, false},
	} {
		want := ""
		if c.served {
			want = simple
		}
		run(t, `{metadata: {name: web, namespace: default}, spec: {clusterIP: 10.96.0.1}}`,
			[]conversion{{"1.2 " + strconv.Quote(c.proxy) + " and " + c.labels, "metadata: {labels: " + c.labels + "}", want, nil}},
			func(s *corev1.Service) (any, []*manifest.FieldError) { return anyOf(Service(s, c.proxy)) })
	}
}

// FuzzWeights checks that any text gives each host a weight in range, drains
// only those of weight 0, and warns if it sets no weight.
func FuzzWeights(f *testing.F) {
	for _, text := range []string{"", "3", "2,10.0.0.1=0", "10.0.0.1 = 100, fd00::1=1", "10.0.0.01=1,::ffff:10.0.0.1=2", "=,=,1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{AnnotationWeight: text},
				Labels: map[string]string{discoveryv1.LabelServiceName: "a"}},
			AddressType: "IPv4",
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}, {Addresses: []string{"10.0.0.2"}}},
		}
		slice, found := EndpointSlice(s)
		given := false
		for _, h := range slice.Hosts {
			if h.Weight > Weights.Highest || h.Drain && h.Weight != 0 {
				t.Errorf("%q gives %+v", text, h)
			}
			given = given || h.Drain || h.Weight > 0
		}
		if !given && len(found) == 0 {
			t.Errorf("%q gives neither a weight nor a warning", text)
		}
		for _, e := range found {
			if !e.Warning || e.Value == "" && !strings.HasSuffix(e.Problem, " more wrong entries") {
				t.Errorf("%q gives %v, no warning with a value", text, e)
			}
		}
	})
}

// TestAnnotationsPage compares the table of EndpointSlices in docs/annotations.md with the
// annotations that are read.
func TestAnnotationsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, slice, _ := strings.Cut(string(page), "\n## Of EndpointSlices and Endpoints\n")
	slice, _, _ = strings.Cut(slice, "\n## ")
	var got []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+/[^`]+)` \\|").FindAllStringSubmatch(slice, -1) {
		got = append(got, match[1])
	}
	want := append([]string{AnnotationCiliumWeight}, SliceAnnotations...)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("docs/annotations.md (-read +listed):\n%s", diff)
	}
}
