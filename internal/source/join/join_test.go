package join

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

var _ source.Source = (*Joined)(nil)

const (
	vipYAML = `{apiVersion: v1, kind: Service, metadata: {namespace: kube-system, name: vip, annotations: {nftproxy.dev/endpoints-from: default/kubernetes}}, spec: {clusterIP: 192.0.2.100, ports: [{port: 6443}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: kube-system, name: vip-1, labels: {kubernetes.io/service-name: vip}}, addressType: IPv4, ports: [{port: 6443}], endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]}
`
	kubernetesYAML      = `{metadata: {namespace: default, name: kubernetes}, spec: {clusterIP: 10.96.0.1, ports: [{name: https, port: 443}]}}`
	kubernetesSliceYAML = `{metadata: {namespace: default, name: kubernetes, labels: {kubernetes.io/service-name: kubernetes}}, addressType: IPv4, ports: [{name: https, port: 6443}], endpoints: [{addresses: [10.0.0.2]}, {addresses: [10.0.0.3]}]}`
	otherYAML           = `{metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.1, externalIPs: [192.0.2.100], ports: [{port: 6443}]}}`
	fileWebYAML         = `{apiVersion: v1, kind: Service, metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}}
`
)

// joinLab is a Joined source of a file and a fake API server. It lives in a bubble.
type joinLab struct {
	*cluster.Cluster
	t      *testing.T
	api    *fake.Clientset
	log    bytes.Buffer
	joined *Joined
	path   string
	edited chan struct{}
	states map[model.ServiceName]model.ServiceState // after the updates so far
	last   *model.Update
}

func newJoinLab(t *testing.T, file string, keep bool, objects ...runtime.Object) *joinLab {
	// The second handler slows errors down by a clock that all bubbles share.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	l := &joinLab{
		t: t, api: fake.NewSimpleClientset(objects...), path: t.TempDir() + "/a.yaml",
		edited: make(chan struct{}), states: make(map[model.ServiceName]model.ServiceState),
	}
	l.Cluster = cluster.New(&cluster.Client{
		Services:     sourcetest.ReaderOf(l.api.CoreV1().Services(metav1.NamespaceAll)),
		Slices:       sourcetest.ReaderOf(l.api.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)),
		Nodes:        sourcetest.ReaderOf(l.api.CoreV1().Nodes()),
		ServiceCIDRs: sourcetest.ReaderOf(l.api.NetworkingV1().ServiceCIDRs()),
	}, cluster.Config{NodeConfig: model.Config{NodeName: "n1"}, Log: slog.New(slog.NewTextHandler(&l.log, nil))})
	check(t, os.WriteFile(l.path, []byte(file), 0o600))
	l.joined = New(files.Follow(&files.Reader{Paths: []string{l.path}}, editing(l.edited), "n1", l.Log), l.Cluster, nil)
	l.joined.Keep = keep
	return l
}

// editing is a watcher that receives changes.
type editing chan struct{}

func (e editing) Run(ctx context.Context, changed func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e:
			changed()
		}
	}
}

// cut makes the API server unreachable until the function returned is called.
func (l *joinLab) cut() (mend func()) {
	var up atomic.Bool
	l.api.PrependReactor("*", "*", func(kubetesting.Action) (bool, runtime.Object, error) {
		return !up.Load(), nil, apierrors.NewServiceUnavailable("down")
	})
	return func() { up.Store(true) }
}

func (l *joinLab) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.joined.Run(ctx, func() {}) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Errorf("ends with %v", err)
		}
	})
}

func (l *joinLab) write(text string) {
	l.t.Helper()
	check(l.t, os.WriteFile(l.path, []byte(text), 0o600))
	l.edited <- struct{}{}
	synctest.Wait()
}

// ready reports whether Await returns within three minutes. A client that was refused tries
// again after at most one.
func (l *joinLab) ready() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return l.joined.Await(ctx) == nil
}

// logged checks how many lines of the log hold all the words.
func (l *joinLab) logged(want int, words ...string) {
	l.t.Helper()
	synctest.Wait()
	sourcetest.CheckLog(l.t, l.log.String(), want, words...)
}

// serves checks what all updates so far add up to.
func (l *joinLab) serves(want ...string) {
	l.t.Helper()
	synctest.Wait()
	u, err := l.joined.Load()
	check(l.t, err)
	l.last = u
	for name, s := range l.joined.Lookup(nil) {
		if got := l.joined.Lookup([]model.ServiceName{name})[name]; !reflect.DeepEqual(s, got) {
			l.t.Errorf("lookup of %s: %v, want %v", name, got, s)
		}
	}
	if diff := cmp.Diff(want, served(l.joined.Lookup(nil))); diff != "" {
		l.t.Errorf("looked up (-want +got):\n%s", diff)
	}
	for name, s := range u.Services {
		if s.Service == nil {
			delete(l.states, name)
			continue
		}
		l.states[name] = s
	}
	if diff := cmp.Diff(want, served(l.states)); diff != "" {
		l.t.Errorf("served (-want +got):\n%s", diff)
	}
}

// served has a line for each Service with its endpoints.
func served(states map[model.ServiceName]model.ServiceState) (out []string) {
	for name, s := range states {
		line := fmt.Sprintf("%s %v", name, s.Service.ClusterIPs)
		for _, p := range s.Service.Ports {
			for _, e := range model.Endpoints(model.PortName{Service: name, Port: p.Name, Protocol: p.Protocol}, model.IPv4, s.Slices) {
				line += " " + e.Address().String()
			}
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// TestJoinAtBoot: 14.20, 14.23. Without rules of an earlier run the files are served
// before the API server is reachable; then both, with the endpoints of the cluster.
func TestJoinAtBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, vipYAML, false, sourcetest.Read[corev1.Service](t, kubernetesYAML), sourcetest.Read[discoveryv1.EndpointSlice](t, kubernetesSliceYAML), sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML))
		mend := l.cut()
		l.start()
		check(t, l.joined.AwaitNode(t.Context()))
		check(t, l.joined.Await(t.Context()))
		l.serves("kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
		time.Sleep(time.Minute)
		if l.joined.Complete() {
			t.Error("complete without the cluster")
		}
		s := l.joined.State()
		if s.Err == nil || !strings.Contains(s.Err.Error(), "the API server cannot be read") || time.Since(s.Since) < 50*time.Second {
			t.Errorf("state without an API server: %+v", s)
		}
		if n := l.joined.Node(); n == nil || len(n.Addresses) > 0 {
			t.Errorf("node %+v", n)
		}
		mend()
		time.Sleep(2 * time.Minute)
		l.serves("default/kubernetes [10.96.0.1] 10.0.0.2:6443 10.0.0.3:6443", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443 10.0.0.3:6443")
		if s := l.joined.State(); s.Err != nil || !l.joined.Complete() || len(l.last.Nodes) != 1 || len(l.joined.Node().Addresses) != 1 {
			t.Errorf("state %+v, nodes %v", s, l.last.Nodes)
		}

		// The list of the cluster follows, and the endpoints of the file stay without it.
		endpoints := l.api.DiscoveryV1().EndpointSlices("default")
		shorter := sourcetest.Read[discoveryv1.EndpointSlice](t, kubernetesSliceYAML)
		shorter.Endpoints = nil
		_, err := endpoints.Update(t.Context(), shorter, metav1.UpdateOptions{})
		check(t, err)
		l.serves("default/kubernetes [10.96.0.1]", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
		check(t, endpoints.Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}))
		l.serves("default/kubernetes [10.96.0.1]", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
	})
}

// TestJoinAtRestart: 14.20. Rules of an earlier run stay until both sources have been
// read, whichever comes last.
func TestJoinAtRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, vipYAML, true, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML))
		mend := l.cut()
		l.start()
		if l.ready() {
			t.Error("ready without the API server")
		}
		mend()
		check(t, l.joined.Await(t.Context()))
		l.serves("a/web [10.96.0.1]", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
	})
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, vipYAML, true, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML))
		l.start()
		check(t, l.joined.Await(t.Context()))
		if l.serves("a/web [10.96.0.1]", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443"); l.last.Partial {
			t.Error("partial with both")
		}
	})
}

// TestJoinRestartWithMistake: 14.20, 14.25. Files that have a mistake, or do not exist,
// when rules of an earlier run are in the kernel do not hold up the cluster. The update
// says that Services are missing, until the files can be used.
func TestJoinRestartWithMistake(t *testing.T) {
	for name, text := range map[string]string{"a mistake": "{", "empty": "", "no file": "-"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newJoinLab(t, text, true, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML))
				if text == "-" {
					check(t, os.Remove(l.path))
				}
				mend := l.cut()
				l.start()
				if l.ready() {
					t.Error("ready without the API server")
				}
				mend()
				if !l.ready() {
					t.Fatal("the files hold up the cluster")
				}
				l.partial(true, "a/web [10.96.0.1]")
				l.logged(1, "the files cannot be used, and were not read before")
				l.logged(0, "stays in use")
				if s := l.joined.State(); s.Err == nil || !strings.HasPrefix(s.Err.Error(), "files, not read since the start (rules of an earlier run for their Services stay): ") {
					t.Errorf("state %+v", s)
				}
				_, err := l.api.CoreV1().Services("a").Update(t.Context(), sourcetest.Read[corev1.Service](t, otherYAML), metav1.UpdateOptions{})
				check(t, err)
				l.partial(true, "a/web [10.96.0.1]")
				l.write(vipYAML)
				l.partial(false, "a/web [10.96.0.1]", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
				l.write("{")
				l.logged(1, "the files cannot be used; what they said before stays in use")
				l.partial(false, "a/web [10.96.0.1]", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
			})
		})
	}
}

// partial is like serves, and checks whether the update says that Services are missing.
func (l *joinLab) partial(want bool, services ...string) {
	l.t.Helper()
	if l.serves(services...); l.last.Partial != want {
		l.t.Errorf("partial: %v, want %v", l.last.Partial, want)
	}
}

// TestJoinInvalidFile: 14.22. At boot the cluster is served without files that cannot
// be used; later what the files said before stays in use, and the cluster is followed.
func TestJoinInvalidFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, "{", false, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML), sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML))
		l.start()
		check(t, l.joined.Await(t.Context()))
		l.serves("a/web [10.96.0.1]")
		l.logged(1, "the files cannot be used")
		l.write(vipYAML)
		l.logged(1, "the files can be used again")
		l.serves("a/web [10.96.0.1]", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
		l.write("{")
		l.write("{")
		l.logged(2, "the files cannot be used")
		failures := l.joined.State().Failures
		_, err := l.api.CoreV1().Services("a").Update(t.Context(), sourcetest.Read[corev1.Service](t, otherYAML), metav1.UpdateOptions{})
		check(t, err)
		l.serves("a/web [10.96.0.1]", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
		if _, changed := l.last.Services[model.ServiceName{Namespace: "a", Name: "web"}]; !changed || len(l.last.Services) != 1 || failures != 3 {
			t.Errorf("%d failures, update %v", failures, l.last.Services)
		}
	})
}

// TestJoinSameName: 14.21. The Service of the files replaces that of the cluster, with
// its endpoints, until the files no longer have it.
func TestJoinSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, fileWebYAML, false, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML), sourcetest.Read[discoveryv1.EndpointSlice](t, sourcetest.SliceYAML), sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML))
		l.start()
		time.Sleep(time.Minute)
		l.serves("a/web [10.96.0.9]")
		l.logged(1, "a Service of the cluster is not served", "service=a/web")
		if s := l.joined.State(); s.Err != nil || !slices.Contains(s.Warnings, "Service a/web of the cluster is not served: the files define it, too") {
			t.Errorf("state %+v", s)
		}
		l.write(vipYAML)
		l.serves("a/web [10.96.0.1] 10.128.0.1:8080", "kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
		if s := l.joined.State(); slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "a/web") }) {
			t.Errorf("state %+v", s)
		}
		l.write(fileWebYAML)
		l.serves("a/web [10.96.0.9]")
		l.logged(2, "a Service of the cluster is not served", "service=a/web")
	})
}

// TestJoinClaims: 14.21. A Service of the cluster cannot take an address of the files.
func TestJoinClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := sourcetest.Read[corev1.Service](t, otherYAML)
		old.CreationTimestamp = metav1.Unix(1000, 0)
		external := strings.Replace(vipYAML, "clusterIP: 192.0.2.100", "clusterIP: 198.51.100.1, externalIPs: [192.0.2.100]", 1)
		l := newJoinLab(t, external, false, old, sourcetest.Read[discoveryv1.EndpointSlice](t, sourcetest.SliceYAML), sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML))
		l.start()
		time.Sleep(time.Minute)
		u, err := l.joined.Load()
		check(t, err)
		router := model.NewRouter()
		router.SetServices(u.Services)
		for _, r := range router.Routes() {
			if r.Frontend.Address == netip.MustParseAddr("192.0.2.100") && r.Service.Name.Name != "vip" {
				t.Errorf("%v is served by %s", r.Frontend, r.Service.Name)
			}
		}
		if n := router.Notices(); len(n) != 1 || n[0].Reason != model.Conflict {
			t.Errorf("notices %v", n)
		}
	})
}

// TestJoinUnusableNode: the process ends if the rules depend on pod ranges that the
// Node does not get.
func TestJoinUnusableNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, vipYAML, false, sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML))
		l.NodeConfig.DetectLocal = model.DetectNodeCIDR
		if err := l.joined.Run(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), "podCIDRs") {
			t.Errorf("ends with %v", err)
		}
	})
}

// TestJoinReload: the files are read again on request, without an event.
func TestJoinReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, fileWebYAML, false, sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML))
		l.start()
		time.Sleep(time.Minute)
		l.serves("a/web [10.96.0.9]")
		check(t, os.WriteFile(l.path, []byte(vipYAML), 0o600))
		l.serves("a/web [10.96.0.9]")
		l.joined.Reload()
		l.serves("kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443")
	})
}

// TestJoinSnapshots: one-shot commands see what the daemon serves.
func TestJoinSnapshots(t *testing.T) {
	file := func(text string) *model.Snapshot {
		t.Helper()
		in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
		check(t, err)
		return in.Snapshot
	}
	typed := func(kind, text string) string {
		return "{apiVersion: " + map[string]string{"Service": "v1", "EndpointSlice": "discovery.k8s.io/v1"}[kind] + ", kind: " + kind + ", " + text[1:] + "\n---\n"
	}
	cluster := file(typed("Service", sourcetest.WebYAML) + typed("EndpointSlice", sourcetest.SliceYAML) + typed("Service", kubernetesYAML) + typed("EndpointSlice", kubernetesSliceYAML))
	out, warnings := Snapshots(file(vipYAML+"---\n"+fileWebYAML), cluster)
	want := []string{"a/web [10.96.0.9]", "default/kubernetes [10.96.0.1] 10.0.0.2:6443 10.0.0.3:6443",
		"kube-system/vip [192.0.2.100] 10.0.0.1:6443 10.0.0.2:6443 10.0.0.3:6443"}
	if diff := cmp.Diff(want, served(out.Update().Services)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := []string{"Service a/web of the cluster is not served: the files define it, too"}; !slices.Equal(warnings, want) {
		t.Errorf("warnings %q", warnings)
	}
}

// TestCompletePorts: 14.23, at which ports endpoints of the cluster are reached.
func TestCompletePorts(t *testing.T) {
	from := model.ServiceName{Namespace: "default", Name: "kubernetes"}
	more := []*model.EndpointSlice{{
		Namespace: "default", Name: "kubernetes", Service: "kubernetes", Family: model.IPv4,
		Ports: []model.EndpointPort{{Name: "https", Port: 6443}}, Hosts: []model.Host{{Address: netip.MustParseAddr("10.0.0.3"), Ready: true}},
	}}
	own := func(f model.Family, address string, ports ...model.EndpointPort) *model.EndpointSlice {
		return &model.EndpointSlice{Service: "vip", Family: f, Ports: ports, Hosts: []model.Host{{Address: netip.MustParseAddr(address), Ready: true}}}
	}
	for _, c := range []struct {
		name  string
		ports []model.ServicePort
		own   []*model.EndpointSlice
		want  []string
	}{
		{"those of the files", []model.ServicePort{{Port: 443}}, []*model.EndpointSlice{own(model.IPv4, "10.0.0.1", model.EndpointPort{Port: 7443})},
			[]string{"10.0.0.1:7443", "10.0.0.3:7443"}},
		{"those of the files of the other family", []model.ServicePort{{Port: 443}}, []*model.EndpointSlice{own(model.IPv6, "fd00::1", model.EndpointPort{Port: 7443})},
			[]string{"10.0.0.3:7443"}},
		{"the only one of the cluster", []model.ServicePort{{Name: "api", Port: 443}}, nil, []string{"10.0.0.3:6443"}},
		{"of the same name", []model.ServicePort{{Name: "https", Port: 443}, {Name: "join", Port: 9345}}, nil, []string{"10.0.0.3:6443"}},
		{"none of that name", []model.ServicePort{{Name: "api", Port: 443}, {Name: "join", Port: 9345}}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := model.ServiceState{Service: &model.Service{Name: model.ServiceName{Namespace: "a", Name: "vip"}, Ports: c.ports}, Slices: c.own}
			var got []string
			for _, p := range c.ports {
				for _, e := range model.Endpoints(model.PortName{Port: p.Name}, model.IPv4, completeSlices(s, from, more)) {
					got = append(got, e.Address().String())
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
