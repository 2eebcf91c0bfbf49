package convert

import (
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestHostileCheck: 3.30, who may write an annotation must not keep the process busy: each of
// these texts is refused, and reading it allocates little. Keys are compared with each other,
// and aliases repeat what they stand for.
func TestHostileCheck(t *testing.T) {
	const most = 4 << 20 // bytes that the conversion of such a Service may allocate
	const (
		long    = ": is longer than 4096 bytes: shorten it"
		aliases = " has an anchor or an alias (& or *): write the values out"
		merges  = " merges fields (<<): write them out"
		many    = " has more than 256 values: a health check has few"
		unread  = " cannot be read: " + healthcheck.Forms
	)
	for name, c := range map[string]struct{ text, want string }{
		"keys, and aliases":  {"- &a " + sourcetest.ManyKeys(28_000) + "\n" + strings.Repeat("- *a\n", 12), long},
		"keys":               {sourcetest.ManyKeys(44_000), long},
		"short keys":         {sourcetest.ManyKeys(1000), many},
		"one key":            {"{" + strings.Repeat("a,", 2000) + "}", many},
		"items":              {"{http: /, status: [" + strings.Repeat("9,", 2000) + "]}", many},
		"items without end":  {strings.Repeat("[", 4000), unread},
		"nested items":       {strings.Repeat("[", 1500) + strings.Repeat("]", 1500), many},
		"an alias":           {"[&a tcp, *a]", aliases},
		"an anchor":          {"&a tcp", aliases},
		"an anchor in a key": {"{&a tcp: }", aliases},
		"doubling aliases":   {"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: &d [*c,*c]", aliases},
		"an alias to itself": {"&a [*a]", aliases},
		"a merge key":        {"{<<: {interval: 5s}, tcp: }", merges},
		"a quoted merge key": {`{"<<": {interval: 5s}, tcp: }`, `.<<: unknown field`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{setting.Check.Annotation: c.text}},
				Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}}},
			}
			service, found := Service(s, "")
			if service.Check != nil || len(found) != 1 || !strings.Contains(found[0].Error(), c.want) {
				t.Errorf("check %v, findings %.300q", service.Check, sourcetest.Texts(found))
			}
			if n := allocated(func() { Service(s, "") }); n > most {
				t.Errorf("allocates %d bytes", n)
			}
		})
	}
}

// allocated returns how many bytes a function allocates; other tests must not run meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
