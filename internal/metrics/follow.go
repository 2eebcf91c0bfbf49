package metrics

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
)

// The functions of this file are called at most once each. Each scrape calls what they are given, for example a method of
// [report.Server], which must be safe for concurrent use.

// FollowAgent exports when a sync was last requested.
func (s *Set) FollowAgent(state func() agent.State) {
	queued := scraped.Gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "Unix time of the last request for a sync.", familyLabel)
	s.Add(scraped.New(func(out scraped.Values) error {
		for _, f := range s.families {
			out.Add(queued, unixSeconds(state().LastRequest), f.String())
		}
		return nil
	}, queued))
}

// FollowCluster exports how many events the API server sends, and how many objects wait for a sync.
func (s *Set) FollowCluster(counts func() cluster.Counts) {
	services := scraped.Gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "Services that have changed since the last sync.")
	endpoints := scraped.Gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "EndpointSlices that have changed since the last sync.")
	serviceEvents := scraped.Counter("kubeproxy_sync_proxy_rules_service_changes_total", "Events of Services, once for each IP family.")
	endpointEvents := scraped.Counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Events of EndpointSlices.")
	rejected := scraped.Gauge("nftproxy_rejected_objects", "Objects of the API server with an unusable part; the log says which.")
	s.Add(scraped.New(func(out scraped.Values) error {
		c := counts()
		out.Add(services, float64(c.PendingServices))
		out.Add(endpoints, float64(c.PendingSlices))
		out.Add(serviceEvents, float64(c.Services*uint64(len(s.families)))) // as kube-proxy counts them (11.6)
		out.Add(endpointEvents, float64(c.Slices))
		out.Add(rejected, float64(c.Rejected))
		return nil
	}, services, endpoints, serviceEvents, endpointEvents, rejected))
}

// FollowSource exports the state of the source.
func (s *Set) FollowSource(state func() source.State) {
	usable := scraped.Gauge("nftproxy_source_usable", "1 if the files or the API server can be used, else 0; the rules follow what was read before.")
	failures := scraped.Counter("nftproxy_source_errors_total", "Failed attempts to read the files, or failed requests to the API server for objects.")
	success := scraped.Gauge("nftproxy_source_last_success_timestamp_seconds", "Unix time at which the files or the API server were read last.")
	warnings := scraped.Gauge("nftproxy_source_warnings", "Warnings about objects that are used, but not as their author may expect; the log and the status have them.")
	s.Add(scraped.New(func(out scraped.Values) error {
		now := state()
		last := 0.0
		if !now.LastSuccess.IsZero() {
			last = unixSeconds(now.LastSuccess)
		}
		out.Add(usable, scraped.Yes(now.Err == nil))
		out.Add(success, last)
		out.Add(warnings, float64(now.Warned))
		out.Add(failures, float64(now.Failures))
		return nil
	}, usable, failures, success, warnings))
}

// frontendLabels are the kinds in one word.
var frontendLabels = [...]string{
	model.ClusterIP: "ClusterIP", model.LoadBalancerIP: "LoadBalancerIP", model.ExternalIP: "ExternalIP", model.NodePort: "NodePort",
}

// portLabels name a service port.
var portLabels = []string{"namespace", "service", "port", "protocol"}

func portValues(p model.PortName) []string {
	return []string{p.Service.Namespace, p.Service.Name, p.Port, strings.ToUpper(p.Protocol.String())}
}

// FollowConnections exports the connections of each service port.
func (s *Set) FollowConnections(read func() (map[report.Owner]uint64, error)) {
	connections := scraped.Counter("nftproxy_service_connections_total", "New connections to the frontends of a service port.",
		append(portLabels, "frontend", familyLabel)...)
	s.Add(scraped.New(func(out scraped.Values) error {
		counts, err := read()
		if err != nil {
			return fmt.Errorf("read connections of services: %w", err)
		}
		for of, n := range counts {
			out.Add(connections, float64(n), append(portValues(of.Port), frontendLabels[of.Kind], of.Family.String())...)
		}
		return nil
	}, connections))
}

// FollowEndpoints exports the connections to each endpoint.
func (s *Set) FollowEndpoints(read func() (all []report.EndpointTotal, omitted int, err error)) {
	total := scraped.Counter("nftproxy_endpoint_connections_total", "New connections of a service port that were sent to an endpoint.",
		append(portLabels, "endpoint")...)
	omitted := scraped.Gauge("nftproxy_endpoint_connections_omitted", "Service ports whose endpoints have no series, because there would be too many.")
	s.Add(scraped.New(func(out scraped.Values) error {
		all, without, err := read()
		if err != nil {
			return fmt.Errorf("read connections of endpoints: %w", err)
		}
		out.Add(omitted, float64(without))
		for _, n := range all {
			out.Add(total, float64(n.Connections), append(portValues(n.Port), model.EndpointText(n.Endpoint))...)
		}
		return nil
	}, total, omitted))
}

// FollowLimits exports what limits of Services have dropped, and of how many connections they had no room for the client.
func (s *Set) FollowLimits(dropped, unlimited func() (map[report.LimitOwner]uint64, error)) {
	follow := func(name, help string, read func() (map[report.LimitOwner]uint64, error)) {
		connections := scraped.Counter(name, help, append(portLabels, "frontend", familyLabel, "limit")...)
		s.Add(scraped.New(func(out scraped.Values) error {
			counts, err := read()
			if err != nil {
				return fmt.Errorf("read counters of limits: %w", err)
			}
			for of, n := range counts {
				out.Add(connections, float64(n), append(portValues(of.Port), frontendLabels[of.Kind], of.Family.String(), of.Limit.String())...)
			}
			return nil
		}, connections))
	}
	follow("nftproxy_service_connections_limited_total", "New connections to the frontends of a service port that a limit has dropped.", dropped)
	follow("nftproxy_service_connections_unlimited_total",
		"New connections to the frontends of a service port that passed without a limit of clients, because it remembers no more clients.", unlimited)
}

// FollowRefusals exports the connections that the rules have refused.
func (s *Set) FollowRefusals(read func() (map[report.RefusalOwner]uint64, error)) {
	refused := scraped.Counter("nftproxy_refused_connections_total", "New connections that the rules have refused, by reason and Service.",
		"reason", "namespace", "service")
	s.Add(scraped.New(func(out scraped.Values) error {
		counts, err := read()
		if err != nil {
			return fmt.Errorf("read refused connections: %w", err)
		}
		for of, n := range counts {
			out.Add(refused, float64(n), of.Reason.String(), of.Service.Namespace, of.Service.Name)
		}
		return nil
	}, refused))
}

// FollowMachine exports the number of problems of this machine, by check, and the use of connection tracking.
func (s *Set) FollowMachine(problems func() (problems, warnings map[string]int), conntrack func() (machine.Conntrack, error)) {
	failed := scraped.Gauge("nftproxy_machine_problems",
		"Problems of this machine that keep Services from being served; nftproxy check and the log have them in words.", "check")
	warned := scraped.Gauge("nftproxy_machine_warnings",
		"What may keep Services of this machine from being served, depending on what cannot be seen from here; nftproxy check and the log have it in words.", "check")
	entries := scraped.Gauge("nftproxy_conntrack_entries", "Connections that the kernel tracks in this network namespace.")
	limit := scraped.Gauge("nftproxy_conntrack_entries_limit", "Most connections that the kernel tracks.")
	s.Add(scraped.New(func(out scraped.Values) error {
		failures, warnings := problems()
		for check, n := range failures {
			out.Add(failed, float64(n), check)
		}
		for check, n := range warnings {
			out.Add(warned, float64(n), check)
		}
		// Without the module there is nothing to export.
		if use, err := conntrack(); err == nil && use.Max > 0 {
			out.Add(entries, float64(use.Count))
			out.Add(limit, float64(use.Max))
		}
		return nil
	}, failed, warned, entries, limit))
}
