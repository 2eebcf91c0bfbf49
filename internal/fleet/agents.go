package fleet

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// Agent is a pod in which nftproxy runs for a node.
type Agent struct {
	Node, Namespace, Pod string
	// State is why the pod may not answer; empty: it runs and is ready.
	State string
}

// String returns the node with the pod, for messages.
func (a *Agent) String() string { return a.Node + " (pod " + a.Namespace + "/" + a.Pod + ")" }

// Node is a Node object that should have an agent, or has one.
type Node struct {
	Name   string
	Labels map[string]string
	// Wanted reports whether a DaemonSet of agents selects the node.
	Wanted bool
}

// ReadyOn returns the agent on a node that runs and is ready; nil: there is none.
func ReadyOn(agents []Agent, node string) *Agent {
	for i := range agents {
		if agents[i].Node == node && agents[i].State == "" {
			return &agents[i]
		}
	}
	return nil
}

// queryAgents selects the objects with the labels of agents, in their namespace if that is known.
func (f *Fleet) queryAgents(group, resource string) kubectl.Query {
	if f.Namespace != "" {
		group += "/namespaces/" + f.Namespace
	}
	return kubectl.Query{Path: group + "/" + resource, Options: map[string]string{"labelSelector": f.Pods}}
}

// Agents lists the agents that are on a node, sorted by its name. A node has two while a pod
// is replaced.
func (f *Fleet) Agents(ctx context.Context) ([]Agent, error) {
	var agents []Agent
	q := f.queryAgents("/api/v1", "pods")
	_, err := kubectl.List(ctx, f.API, "pods of nftproxy", q, func(pods []corev1.Pod) {
		for i := range pods {
			p := &pods[i]
			if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				continue
			}
			agents = append(agents, Agent{p.Spec.NodeName, p.Namespace, p.Name, stateOf(p)})
		}
	})
	slices.SortFunc(agents, func(a, b Agent) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return agents, err
}

// stateOf returns why a pod may not answer.
func stateOf(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "the pod is ending"
	}
	for i := range p.Status.ContainerStatuses {
		switch s := &p.Status.ContainerStatuses[i].State; {
		case s.Waiting != nil:
			return "the pod waits: " + s.Waiting.Reason
		case s.Terminated != nil:
			return "the pod has ended: " + s.Terminated.Reason
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return "the pod is not ready"
		}
	}
	if p.Status.Phase == corev1.PodPending {
		return "the pod is pending"
	}
	return ""
}
