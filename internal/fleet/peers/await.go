package peers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// await waits until pods run and are ready. Of nodes where one has failed, or does not start in
// time, it says why.
func (l *Lab) await(ctx context.Context, pods map[string]*corev1.Pod, progress func(ready, all int)) (running []corev1.Pod, why map[string]string, err error) {
	late, err := l.poll(ctx, func(limited context.Context) (bool, error) {
		all, err := l.list(limited)
		if err != nil {
			return false, err
		}
		failed := 0
		running, why, failed = judge(all, pods)
		progress(len(running), len(pods))
		return len(running)+failed == len(pods), nil
	})
	if err != nil {
		return nil, nil, err
	}
	for node, reason := range why {
		if late {
			why[node] = fmt.Sprintf("%s, after %s", reason, l.Patience)
		}
	}
	return running, why, nil
}

const pollPause = 300 * time.Millisecond

// poll asks until check is done, or fails. late reports that it was not done within the patience, and err why
// the test ends.
func (l *Lab) poll(ctx context.Context, check func(context.Context) (done bool, err error)) (late bool, err error) {
	limited, cancel := context.WithTimeout(ctx, l.Patience)
	defer cancel()
	for {
		done, err := check(limited)
		if done || err != nil && limited.Err() == nil {
			return false, err
		}
		if !parallel.Wait(limited, pollPause) {
			return true, kubectl.Ended(ctx)
		}
	}
}

// judge returns the pods that are ready, of the ones that are waited for, by node why others are not,
// and how many never will be.
func judge(all []corev1.Pod, wanted map[string]*corev1.Pod) (running []corev1.Pod, why map[string]string, failed int) {
	why = make(map[string]string)
	for i := range all {
		p := &all[i]
		if wanted[p.Name] == nil {
			continue
		}
		reason, final := notReady(p)
		if final {
			failed++
		}
		switch {
		case reason == "":
			running = append(running, *p)
		case final || why[p.Spec.NodeName] == "":
			why[p.Spec.NodeName] = reason
		}
	}
	return running, why, failed
}

// notReady returns why a pod is not ready, and whether it will never be; empty: it is.
func notReady(p *corev1.Pod) (why string, final bool) {
	name := "pod " + p.Name
	for i := range p.Status.ContainerStatuses {
		switch s := &p.Status.ContainerStatuses[i].State; {
		case s.Terminated != nil:
			return fmt.Sprintf("%s has ended with code %d: %s", name, s.Terminated.ExitCode, firstLine(s.Terminated.Message, s.Terminated.Reason)), true
		case s.Waiting != nil && s.Waiting.Reason != "ContainerCreating":
			return fmt.Sprintf("%s waits: %s: %s", name, s.Waiting.Reason, firstLine(s.Waiting.Message, p.Spec.Containers[0].Image)), false
		}
	}
	switch {
	case p.Status.Phase == corev1.PodFailed:
		return fmt.Sprintf("%s has failed: %s", name, firstLine(p.Status.Message, p.Status.Reason)), true
	case len(p.Status.Conditions) == 0:
		return name + " is not started: does a kubelet run on the node?", false
	case len(p.Status.PodIPs) == 0:
		return name + " has no address yet: kubectl describe pod says why", false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return "", false
		}
	}
	return name + " is not ready", false
}

func firstLine(texts ...string) string {
	for _, text := range texts {
		if line, _, _ := strings.Cut(strings.TrimSpace(text), "\n"); line != "" {
			return line
		}
	}
	return "no reason is given"
}

// ServiceEndpoints returns the Services, with the addresses of the pods that take their connections now.
func (l *Lab) ServiceEndpoints() map[string][]netip.Addr {
	out := make(map[string][]netip.Addr)
	for _, k := range kinds() {
		addresses := []netip.Addr{}
		for i := range l.running {
			p := &l.running[i]
			for _, a := range fleet.AddressesOf(p) {
				if p.Labels[k.label] != "" && slices.Contains(l.families[k.name], corev1.IPFamily(model.FamilyOf(a).String())) {
					addresses = append(addresses, a)
				}
			}
		}
		slices.SortFunc(addresses, netip.Addr.Compare)
		out[k.name] = addresses
	}
	return out
}

// errNotPublished means that the control plane is slow.
var errNotPublished = errors.New("the control plane does not publish the endpoints of the pods")

// AwaitEndpoints waits until the API server has these endpoints of Services.
func (l *Lab) AwaitEndpoints(ctx context.Context, want map[string][]netip.Addr) error {
	missing := ""
	late, err := l.poll(ctx, func(limited context.Context) (bool, error) {
		have, err := l.published(limited)
		missing = ""
		for name, addresses := range want {
			if !slices.Equal(have[name], addresses) {
				missing = fmt.Sprintf("Service %s has %v, and should have %v", name, have[name], addresses)
			}
		}
		return err == nil && missing == "", err
	})
	if late && err == nil {
		err = fmt.Errorf("%w within %s: %s", errNotPublished, l.Patience, missing)
	}
	return err
}

func (l *Lab) published(ctx context.Context) (map[string][]netip.Addr, error) {
	have := make(map[string][]netip.Addr)
	q := kubectl.Query{Path: l.Path("/apis/discovery.k8s.io/v1", "endpointslices")}
	_, err := kubectl.List(ctx, l.fleet.API, "EndpointSlices of the test", q, func(page []discoveryv1.EndpointSlice) {
		for i := range page {
			service := page[i].Labels[discoveryv1.LabelServiceName]
			for _, e := range page[i].Endpoints {
				a, err := netip.ParseAddr(e.Addresses[0])
				if err == nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
					have[service] = append(have[service], a)
				}
			}
		}
	})
	for _, addresses := range have {
		slices.SortFunc(addresses, netip.Addr.Compare)
	}
	return have, err
}
