package scale

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// large is the number of endpoints of the Service that is rolled out: what the
// controller puts into one EndpointSlice.
const large = 100

// content is the objects that the watchers watch.
type content struct {
	c   *testbed.Cluster
	api kubernetes.Interface
	// small and rollout are slices of 4 and of 100 endpoints, which change.
	small, rollout *discoveryv1.EndpointSlice
	pods           int // made so far
}

// fill creates Services with their EndpointSlices, as the controller writes them:
// with references to the pods, their nodes and zones.
func fill(c *testbed.Cluster, services int) *content {
	c.T.Helper()
	config := rest.CopyConfig(c.Config)
	config.ContentType = runtime.ContentTypeProtobuf
	o := &content{c: c, api: c.ClientFor(config)}
	for i := range services {
		endpoints := testbed.LoadEndpoints
		if i == services-1 {
			endpoints = large
		}
		service := o.create(i)
		slice := o.slice(service, endpoints)
		made, err := o.api.DiscoveryV1().EndpointSlices(testbed.Namespace).Create(c.T.Context(), slice, metav1.CreateOptions{FieldManager: "endpointslice-controller"})
		if err != nil {
			c.T.Fatal(err)
		}
		o.small, o.rollout = o.rollout, made
	}
	return o
}

func (o *content) create(i int) *corev1.Service {
	o.c.T.Helper()
	name := testbed.LoadName(i)
	service, err := o.api.CoreV1().Services(testbed.Namespace).Create(o.c.T.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": name}},
		Spec: corev1.ServiceSpec{
			ClusterIP: testbed.ClusterIP(i).String(),
			Selector:  map[string]string{"app.kubernetes.io/name": name},
			Ports:     []corev1.ServicePort{{Name: "http", Port: testbed.ServicePort}},
		},
	}, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"})
	if err != nil {
		o.c.T.Fatal(err)
	}
	return service
}

// slice returns a slice as the controller writes it.
func (o *content) slice(s *corev1.Service, endpoints int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: s.Name + "-",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: s.Name, "app.kubernetes.io/name": s.Name,
				discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(testbed.EchoPort))}},
	}
	for range endpoints {
		slice.Endpoints = append(slice.Endpoints, o.endpoint(s.Name, true))
	}
	return slice
}

// endpoint returns that of a new pod.
func (o *content) endpoint(service string, ready bool) discoveryv1.Endpoint {
	o.pods++
	return discoveryv1.Endpoint{
		Addresses:  []string{testbed.Address(10, 200, o.pods).String()},
		Conditions: conditions(ready, ready, false),
		NodeName:   new(fmt.Sprintf("node-%05d.example", o.pods%15000)),
		Zone:       new("zone-" + string(rune('a'+o.pods%3))),
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: testbed.Namespace, Name: fmt.Sprintf("%s-7c5ddbdf54-%05x", service, o.pods), UID: newUID(),
		},
	}
}

func newUID() types.UID { return uuid.NewUUID() }

func conditions(ready, serving, terminating bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: new(ready), Serving: new(serving), Terminating: new(terminating)}
}

// write writes a slice as the controller does after a change of pods.
func (o *content) write(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.EndpointsLastChangeTriggerTime, time.Now().UTC().Format(time.RFC3339Nano))
	return o.api.DiscoveryV1().EndpointSlices(testbed.Namespace).Update(o.c.T.Context(), s, metav1.UpdateOptions{FieldManager: "endpointslice-controller"})
}

// replace replaces an endpoint of the small slice.
func (o *content) replace() (err error) {
	s := o.small.DeepCopy()
	s.Endpoints[0] = o.endpoint(s.Labels[discoveryv1.LabelServiceName], true)
	o.small, err = o.write(s)
	return err
}

// rolloutWrites is the number of times that the slice of a Service changes when
// one of its pods is replaced: the new pod has an address, is ready; the old one
// terminates, is gone.
const rolloutWrites = 4

// roll makes one of these changes.
func (o *content) roll(step int) (err error) {
	s := o.rollout.DeepCopy()
	switch last := len(s.Endpoints) - 1; step % rolloutWrites {
	case 0:
		s.Endpoints = append(s.Endpoints, o.endpoint(s.Labels[discoveryv1.LabelServiceName], false))
	case 1:
		s.Endpoints[last].Conditions = conditions(true, true, false)
	case 2:
		s.Endpoints[0].Conditions = conditions(false, true, true)
	case 3:
		s.Endpoints = s.Endpoints[1:]
	}
	o.rollout, err = o.write(s)
	return err
}

// version returns one from which watches can resume.
func (o *content) version() string {
	o.c.T.Helper()
	list, err := o.api.DiscoveryV1().EndpointSlices(testbed.Namespace).List(o.c.T.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		o.c.T.Fatal(err)
	}
	return list.ResourceVersion
}
