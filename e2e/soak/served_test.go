package soak

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const (
	servedPods = 6 // that may be endpoints; they answer all the time
	alwaysIn   = 3 // of them, where endpoints come and go
	clientPods = 2 // that only ask
)

// servedService is a service that must be served all the time.
type servedService struct {
	testbed.Service
	externalIPs []netip.Addr
	pods        []*netlab.Host // that may answer; none: connections are refused
	now         []*netlab.Host // that are endpoints
	scaled      bool           // pods come and go, except the first ones
	sticky      bool           // clients stay with their pod
	local       bool           // clients outside are seen as they are, but not at ClusterIPs
}

// createServed creates the services that must be served.
func (s *soak) createServed() {
	s.T.Helper()
	for i, j := range []*servedService{
		{Service: testbed.Service{Name: "fixed"}, pods: s.Pods[:alwaysIn]},
		{Service: testbed.Service{Name: "scaled"}, pods: s.Pods[:servedPods], scaled: true},
		{Service: testbed.Service{Name: "at-random"}, pods: s.Pods[:servedPods], scaled: true},
		{Service: testbed.Service{Name: "sticky"}, pods: s.Pods[:alwaysIn], sticky: true},
		{Service: testbed.Service{Name: "local"}, pods: s.Pods[:servedPods], scaled: true, local: true},
		{Service: testbed.Service{Name: "empty"}},
	} {
		wanted := testbed.WithNodePorts(testbed.DualStack(j.Name))
		for _, f := range model.Families {
			a := netip.MustParseAddr(map[model.Family]string{model.IPv4: fmt.Sprintf("203.0.112.%d", i+1), model.IPv6: fmt.Sprintf("2001:db8:112::%x", i+1)}[f])
			j.externalIPs = append(j.externalIPs, a)
			wanted.Spec.ExternalIPs = append(wanted.Spec.ExternalIPs, a.String())
		}
		switch j.Name {
		case "sticky":
			wanted.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		case "local":
			wanted.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		case "at-random":
			wanted.Annotations = map[string]string{schedulerAnnotation: "random"}
		}
		j.Service = s.CreateService(wanted)
		j.now = j.pods
		if j.scaled {
			j.now = j.pods[:alwaysIn]
		}
		s.SetEndpoints(j.Service, j.now...)
		s.served = append(s.served, j)
	}
	s.probe = s.CreateService(testbed.DualStack("probe"))
	s.SetEndpoints(s.probe, s.Pods[0])
}

// dialled returns where a service is dialled: its targets, and its external IPs.
func (s *soak) dialled(j *servedService) []testbed.Target {
	all := s.Targets(j.Service)
	for _, a := range j.externalIPs {
		for _, network := range []string{"tcp", "udp"} {
			all = append(all, testbed.Target{Network: network, Family: model.FamilyOf(a), To: netip.AddrPortFrom(a, testbed.ServicePort)})
		}
	}
	return all
}

// becomesServed waits until the services are.
func (s *soak) becomesServed() {
	s.T.Helper()
	for _, j := range s.served {
		for _, to := range s.dialled(j) {
			s.answersOrRefuses(j, to)
		}
	}
}

// scaleServed adds and removes pods that go on answering: open connections may
// stay with them.
func (s *soak) scaleServed(r random) {
	all := slices.DeleteFunc(slices.Clone(s.served), func(j *servedService) bool { return !j.scaled })
	for {
		if !await.Pace(s.stop, time.Duration(200+r.IntN(600))*time.Millisecond) {
			return
		}
		j := pick(r, all...)
		next := slices.Concat(j.pods[:alwaysIn], some(r, j.pods[alwaysIn:]...))
		for _, f := range model.Families {
			err := s.writeSlice(j.Service, f, next, r.oneIn(2))
			for err != nil && !s.ended() { // the API server is away
				await.Pace(s.stop, 100*time.Millisecond)
				err = s.writeSlice(j.Service, f, next, false)
			}
		}
		j.now = next
	}
}

// writeSlice writes the endpoints of a family; removed ones may stay as
// terminating.
func (s *soak) writeSlice(to testbed.Service, f model.Family, pods []*netlab.Host, terminate bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeWait)
	defer cancel()
	api := s.API.DiscoveryV1().EndpointSlices(testbed.Namespace)
	slice := testbed.EndpointSlice(to, f, pods)
	if terminate {
		before, err := api.Get(ctx, slice.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, e := range before.Endpoints {
			stays := slices.ContainsFunc(slice.Endpoints, func(o discoveryv1.Endpoint) bool { return o.Addresses[0] == e.Addresses[0] })
			if !stays {
				e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
				slice.Endpoints = append(slice.Endpoints, e)
			}
		}
	}
	_, err := api.Update(ctx, slice, metav1.UpdateOptions{})
	if apierrors.IsInvalid(err) {
		panic(err)
	}
	return err
}

func (s *soak) ended() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// changeServed changes an endpoint and waits until that is served. It returns
// how long that took, from the first attempt to write it.
func (s *soak) changeServed() time.Duration {
	s.T.Helper()
	begin := time.Now()
	s.probed++
	pod := s.Pods[s.probed%2]
	testbed.Eventually(s.T, func() error {
		s.keepServer()
		return s.writeSlice(s.probe, model.IPv4, []*netlab.Host{pod}, false)
	})
	wait := patience(testbed.Silence)
	testbed.Eventually(s.T, func() error {
		s.keepServer() // it may end before nftproxy hears of the change
		answer, err := s.Client.Ask("tcp", s.probe.Frontend(model.IPv4), wait.next())
		if err != nil || answer.Name != pod.Name {
			return fmt.Errorf("the probe: got %v, %v, want an answer of %s", answer, err, pod.Name)
		}
		return nil
	})
	return time.Since(begin)
}
