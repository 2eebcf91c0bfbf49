package cluster

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// What an object may cost beyond one that rightly asks for as many elements.
const (
	walkCPU    = 100 * time.Millisecond
	walkMemory = 50 << 20 // bytes
	walkRuns   = 6        // at most, until one is within these
)

// walkPlain is the CPU time that a million plain elements took where the bounds were set. A
// slower machine, or one whose caches others use, has as much more time for the rest.
const walkPlain = 2200 * time.Millisecond

// slowness returns how much slower this machine is, from the figures of plain elements.
func (f walkFigures) slowness() float64 {
	return max(1, float64(f.times(plainElements).load)/float64(walkPlain))
}

// walked are the objects of one case: those whose cost is measured.
type walked struct {
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
	node    *corev1.Node
}

// walkCase is a field with a hostile value.
type walkCase struct {
	field, shape string
	build        func() walked
}

// walkFigures are what a case costs: the times are of the CPU, and the memory is in bytes.
type walkFigures struct {
	load, change, other, removal time.Duration
	live, allocated              int64 // after the load, and by it
	elements                     int   // in the rules, by the load
}

// TestBudgetWalk: no annotation and no list of an object costs more than its elements, in any
// of the shapes, at the size that an API server lets through.
func TestBudgetWalk(t *testing.T) {
	each := plainCost(t)
	worst := make(map[string]walkRow)
	var fields []string
	for _, c := range walkCases(t) {
		f := measureWithin(t, c, each)
		if _, known := worst[c.field]; !known {
			fields = append(fields, c.field)
		}
		if over := f.beyond(each); over.share(each) >= worst[c.field].share {
			worst[c.field] = walkRow{c.field, c.shape, f, over.share(each)}
		}
	}
	checkWalkPage(t, fields, worst)
}

// plainCost returns the cost of each of a million elements of plain Services with many
// ports, with an endpoint and without: the larger cost of both.
func plainCost(t *testing.T) (most walkFigures) {
	for _, endpoints := range []int{0, 1} {
		c := walkCase{"", "plain", func() walked {
			o := walked{service: walkService(), slices: []*discoveryv1.EndpointSlice{largeSlice(5000, endpoints)}}
			o.service.Spec.Ports = largeService(5000).Spec.Ports
			return o
		}}
		least := measure(t, c)
		for range 2 {
			least = least.least(measure(t, c))
		}
		most = most.most(least.times(plainElements))
	}
	return most
}

const plainElements = 1_000_000

// times returns the figures for as many elements.
func (f walkFigures) times(elements int) walkFigures {
	share := float64(elements) / float64(f.elements)
	of := func(d time.Duration) time.Duration { return time.Duration(float64(d) * share) }
	return walkFigures{of(f.load), of(f.change), f.other, of(f.removal), int64(float64(f.live) * share), int64(float64(f.allocated) * share), elements}
}

// measureWithin measures a case until it is within the bounds. A busy machine makes all
// figures larger, and never smaller.
func measureWithin(t *testing.T, c walkCase, plain walkFigures) walkFigures {
	f := measure(t, c)
	for n := 1; n < walkRuns && f.beyond(plain).share(plain) > 1; n++ {
		f = f.least(measure(t, c))
	}
	if over := f.beyond(plain); over.share(plain) > 1 {
		t.Errorf("%s, %s: beyond %d plain elements: CPU of the load %v, a change %v, a change of another Service %v, removal %v; memory %d bytes, allocated %d",
			c.field, c.shape, f.elements, over.load, over.change, over.other, over.removal, over.live, over.allocated)
	}
	return f
}

// beyond returns what is left without the cost of as many plain elements.
func (f walkFigures) beyond(plain walkFigures) walkFigures {
	p := plain.times(f.elements)
	return walkFigures{
		max(0, f.load-p.load), max(0, f.change-p.change), f.other, max(0, f.removal-p.removal),
		max(0, f.live-p.live), max(0, f.allocated-p.allocated), f.elements,
	}
}

// share returns the largest share of a bound, on a machine where plain elements cost that
// much.
func (f walkFigures) share(plain walkFigures) float64 {
	memory := float64(max(f.live, f.allocated)) / walkMemory
	if raceEnabled() {
		return memory
	}
	return max(memory, float64(max(f.load, f.change, f.other, f.removal))/float64(walkCPU)/plain.slowness())
}

func (f walkFigures) least(o walkFigures) walkFigures {
	return walkFigures{
		min(f.load, o.load), min(f.change, o.change), min(f.other, o.other), min(f.removal, o.removal),
		min(f.live, o.live), min(f.allocated, o.allocated), f.elements,
	}
}

func (f walkFigures) most(o walkFigures) walkFigures {
	return walkFigures{
		max(f.load, o.load), max(f.change, o.change), max(f.other, o.other), max(f.removal, o.removal),
		max(f.live, o.live), max(f.allocated, o.allocated), o.elements,
	}
}

// raceEnabled reports whether the race detector runs, which takes the most time of all.
func raceEnabled() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// measure loads the objects of a case beside another Service, changes both, and removes the
// objects. Memory that stays is part of what was allocated, so that the bound holds for it too: only the
// page has it, as the garbage collector takes longer than most cases.
func measure(t *testing.T, c walkCase) (f walkFigures) {
	w := newWalkWorld(t)
	var before int64
	if *update {
		before = liveMemory()
	}
	objects := c.build()
	allocated := totalAllocated()
	f.load = cpuOf(func() { f.elements = w.put(objects) })
	f.allocated = totalAllocated() - allocated
	if *update {
		objects = walked{} // nothing but the process under test keeps them
		f.live = liveMemory() - before
		objects = c.build()
	}
	f.other = cpuOf(func() { w.put(walked{service: otherService(8081)}) })
	objects.touch()
	f.change = cpuOf(func() { w.put(objects) })
	f.removal = cpuOf(func() { w.remove(objects) })
	return f
}

// touch changes one port, and leaves one endpoint out.
func (o *walked) touch() {
	if o.service != nil {
		o.service.Spec.Ports[0].Port = 65_000
	}
	for _, s := range o.slices {
		if n := len(s.Endpoints); n > 0 {
			s.Endpoints = s.Endpoints[:n-1]
			break
		}
	}
	if o.node != nil {
		o.node.Labels = map[string]string{corev1.LabelTopologyZone: "b"}
	}
}

// walkWorld is what a node has between the API server and the kernel.
type walkWorld struct {
	t       *testing.T
	cluster *Cluster
	config  model.Config
	router  *model.Router
	rules   *render.State
}

func newWalkWorld(t *testing.T) *walkWorld {
	config := model.Config{NodeName: "node-1"}
	w := &walkWorld{
		t: t, config: config, router: model.NewRouter(),
		cluster: New(nil, Config{NodeConfig: config, HealthChecks: true, Log: slog.New(slog.DiscardHandler)}),
	}
	w.cluster.synced = true
	w.put(walked{service: otherService(8080), node: walkNode(), slices: []*discoveryv1.EndpointSlice{walkSlice("other", 0, 4)}})
	return w
}

// put stores objects, and returns how many elements are in the rules that change.
func (w *walkWorld) put(o walked) int {
	if o.node != nil {
		check(w.t, w.cluster.nodes.Add(o.node))
	}
	if o.service != nil {
		check(w.t, w.cluster.services.Add(o.service))
	}
	for _, s := range o.slices {
		check(w.t, w.cluster.slices.Add(s))
	}
	return w.follow()
}

func (w *walkWorld) remove(o walked) {
	if o.service != nil {
		check(w.t, w.cluster.services.Delete(o.service))
	}
	for _, s := range o.slices {
		check(w.t, w.cluster.slices.Delete(s))
	}
	w.follow()
}

// follow brings the changes to the rules.
func (w *walkWorld) follow() (elements int) {
	u, err := w.cluster.Load()
	check(w.t, err)
	first, base := w.router.Configure(w.config, u.Nodes, u.ServiceCIDRs)
	changes := model.JoinChanges(first, w.router.SetServices(u.Services))
	var delta nft.Delta
	if w.rules == nil || base {
		w.rules, delta = render.Start(w.router.Routing())
	} else {
		delta = w.rules.Change(changes, w.router.NodePortAddresses())
	}
	for _, t := range delta.After.Tables {
		for _, s := range t.Sets {
			elements += len(s.Elements)
		}
	}
	return elements
}

// cpuOf returns the time of the CPU that the process takes for a function.
func cpuOf(f func()) time.Duration {
	before := processCPU()
	f()
	return processCPU() - before
}

func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func liveMemory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func totalAllocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

// walkService returns a Service with addresses of all kinds.
func walkService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1",
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}}},
	}
}

func otherService(port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.2", Ports: []corev1.ServicePort{{Name: "http", Port: port}}},
	}
}

// walkSlice returns slice i of a Service, with endpoints that no other slice has.
func walkSlice(service string, i, endpoints int) *discoveryv1.EndpointSlice {
	name, port := "http", int32(8080)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%s-%d", service, i), Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for j := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{walkAddress(1000*i + j)}})
	}
	return s
}

func walkAddress(i int) string { return fmt.Sprintf("10.%d.%d.%d", 128+i>>16, i>>8&255, i&255) }

func walkNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "a"}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
	}
}
