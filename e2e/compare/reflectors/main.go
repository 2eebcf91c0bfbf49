// Command reflectors is the least that a program on client-go does before it can
// write rules: its reflectors read the Services and EndpointSlices that nftproxy
// reads, with the same options, and keep them. It prints a line when both kinds
// have been listed, and then follows them until it is killed.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: reflectors KUBECONFIG")
	}
	if err := follow(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func follow(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	services := start(ctx, client, client.CoreV1().RESTClient(), "services", &corev1.Service{}, metav1.ListOptions{
		LabelSelector: "!service.kubernetes.io/service-proxy-name", FieldSelector: "spec.clusterIP!=" + corev1.ClusterIPNone})
	slices := start(ctx, client, client.DiscoveryV1().RESTClient(), "endpointslices", &discoveryv1.EndpointSlice{}, metav1.ListOptions{
		LabelSelector: "!" + corev1.IsHeadlessService})
	<-services.listed
	<-slices.listed
	fmt.Printf("%d services, %d slices\n", len(services.List()), len(slices.List()))
	<-ctx.Done()
	return nil
}

// store says when it has had the first list.
type store struct {
	cache.Store
	listed chan struct{}
}

func (s *store) Replace(list []any, version string) error {
	err := s.Store.Replace(list, version)
	select {
	case <-s.listed:
	default:
		close(s.listed)
	}
	return err
}

// start starts the reflector of one kind.
func start(ctx context.Context, client kubernetes.Interface, reader rest.Interface, resource string, example runtime.Object, choice metav1.ListOptions) *store {
	s := &store{cache.NewStore(cache.MetaNamespaceKeyFunc), make(chan struct{})}
	lw := cache.NewFilteredListWatchFromClient(reader, resource, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = choice.LabelSelector, choice.FieldSelector
	})
	r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), example, s, cache.ReflectorOptions{})
	go r.RunWithContext(ctx)
	return s
}
