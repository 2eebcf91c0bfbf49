package convert

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// withPorts converts a Service that has port 53 of UDP and the annotation.
func withPorts(text string) (*model.Service, []*manifest.FieldError) {
	return Service(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{setting.Ports.Annotation: text}},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Protocol: "UDP", Port: 53}}},
	}, "")
}

// 1.50, 1.51, 1.52: the annotation for ranges of ports.
func TestPortRanges(t *testing.T) {
	const forms = "write a port or a range such as 10000-20000/udp, or all"
	for _, c := range []struct{ text, want, problem string }{
		{"10000-20000/udp", "10000-20000/udp", ""},
		{"10000-20000", "10000-20000/tcp", ""},
		{" 5060/UDP , 80 ", "80/tcp 5060/udp", ""},
		{"5060/udp:5061", "5060/udp:5061", ""},
		{"all", "all/tcp all/udp all/sctp", ""},
		{"all/sctp", "all/sctp", ""},
		{"1-65535/udp", "all/udp", ""},
		{"all/tcp:80", "all/tcp:80", ""},
		{"10-20:5", "10-20/tcp:5", ""},
		{"10-12/udp : 20-22", "10/udp:20 11/udp:21 12/udp:22", ""},
		{"52-54/udp:62-64", "52/udp:62 54/udp:64", ""}, // the Service has 53
		{"10-12:10-12", "10-12/tcp", ""},
		{"10-20,15-30", "10-30/tcp", ""},
		{"10-20,30-40,15-35,36", "10-40/tcp 36/tcp", ""},
		{"10-20,15:1", "10-20/tcp 15/tcp:1", ""},
		{"80,80,80", "80/tcp", ""},
		{"10-20,15-30:5", "10-20/tcp", `"15-30:5" is not used: it overlaps the earlier entry 10-20/tcp, which leads to other ports: remove one of them`},
		{"80,80:1", "80/tcp", `"80:1" is not used: it overlaps the earlier entry 80/tcp, which leads to other ports: remove one of them`},
		{"53/udp,54/udp", "54/udp", `"53/udp" is not used: spec.ports has udp 53, which takes precedence: remove one of them`},
		{"", "", `"" is not used: it has no port: ` + forms},
		{"/udp,7", "7/tcp", `"/udp" is not used: it has no port: ` + forms},
		{"0-5", "", `"0-5" is not used: "0-5" is not a port: use 1 to 65535, or a range such as 5000-5099`},
		{"20-10", "", `"20-10" is not used: "20-10" is not a range of ports: the lowest one comes first`},
		{"10/icmp", "", `"10/icmp" is not used: "icmp" is not a protocol: use "tcp", "udp" or "sctp"`},
		{"10-20:65536", "", `"10-20:65536" is not used: "65536" is not a port: use 1 to 65535, or a range such as 5000-5099`},
		{"10-20:5-6", "", `"10-20:5-6" is not used: 11 ports cannot lead to 2: give a range of the same length, one port for all, or none to keep the port`},
		{"1000-2024:3000-4024", "", `"1000-2024:3000-4024" is not used: more than 1024 ports cannot each lead to another one: keep the ports, or send all to one`},
		{"7:8,1000-2023:3000-4023,1-9", "7/tcp:8", `"1000-2023:3000-4023" is not used, and neither are the entries after it: the list makes more than 1024 ports and ranges, where each port that leads to another one counts, and so do repetitions; keep the ports, or send all to one`},
	} {
		s, found := withPorts(c.text)
		var got []string
		for _, r := range s.Extra().Ranges {
			got = append(got, r.Name)
		}
		if joined := strings.Join(got, " "); joined != c.want {
			t.Errorf("%q: %s, want %s", c.text, joined, c.want)
		}
		var want []string
		if c.problem != "" {
			want = []string{"warning: metadata.annotations[nftproxy.dev/ports]: " + c.problem}
		}
		compare(t, want, sourcetest.Texts(found))
	}
	s, found := withPorts("1000-2023:3000-4023")
	if n := len(s.Extra().Ranges); n != 1024 || len(found) > 0 {
		t.Errorf("%d ports, %v", n, found)
	}
}

// 1.56: a Service with session affinity has none for ranges.
func TestRangesWithAffinity(t *testing.T) {
	for _, c := range []struct {
		ports, scheduler string
		warned           bool
	}{{"10-20", "random", true}, {"10-20", "source-hash", false}, {"10", "random", false}} {
		_, found := Service(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{setting.Ports.Annotation: c.ports, setting.Scheduler.Annotation: c.scheduler}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", SessionAffinity: "ClientIP"},
		}, "")
		if warned := strings.Contains(fmt.Sprint(found), "has no session affinity"); warned != c.warned {
			t.Errorf("%+v: %v", c, found)
		}
	}
}

// TestRangesWithCheck: 1.57. Without ports of the Service, the first one of a range that
// fits is checked, and of a whole address none.
func TestRangesWithCheck(t *testing.T) {
	for _, c := range []struct {
		ports, check string
		want         uint16 // zero: an error
	}{
		{"all", "tcp", 0}, {"10-20/udp", "tcp", 0}, {"all", "{tcp, port: 80}", 80}, {"10-20", "tcp", 10}, {"10-20/udp, 30-40:50", "tcp", 50}, {"all:7", "tcp", 7},
	} {
		s, found := Service(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{setting.Ports.Annotation: c.ports, setting.Check.Annotation: c.check}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1"},
		}, "")
		if got := s.Check; (got != nil) != (c.want != 0) || got != nil && got.Port != c.want || (len(found) == 0) != (c.want != 0) {
			t.Errorf("%+v: %+v, %v", c, s.Check, found)
		}
	}
}

// FuzzPorts: any text gives ranges that the router can serve: sorted, without overlaps of
// two ranges or of two single ports, and no more than a Service may have.
func FuzzPorts(f *testing.F) {
	for _, text := range []string{"10000-20000/udp:5000,5060/UDP", "all,all/udp:80,1-5", "10-20:30-40, 15-25 :35-45,12", "53/udp,50-60/udp:60-70", ",:/-,7-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, found := withPorts(text)
		ranges := s.Extra().Ranges
		if len(ranges) > budget.PortRanges || len(ranges)+len(found) == 0 {
			t.Fatalf("%d ranges, %d findings", len(ranges), len(found))
		}
		for i, a := range ranges {
			if a.Port == 0 || a.Last != 0 && a.Last <= a.Port || a.Name != a.String() || a.NodePort != 0 {
				t.Fatalf("%+v", a)
			}
			if a.Last == 0 && a.Protocol == model.UDP && a.Port == 53 {
				t.Fatalf("%s is a port of the Service", a.Name)
			}
			for _, b := range ranges[i+1:] {
				if sharePorts(a, b) {
					t.Fatalf("%s and %s overlap", a.Name, b.Name)
				}
			}
			if more, problem := parsePortRange(a.Name); problem != "" || len(more) != 1 || more[0] != a {
				t.Fatalf("%s is read as %v, %s", a.Name, more, problem)
			}
		}
	})
}
