package metrics

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/metrics/scraped"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
)

// The functions of this file export what the rules count. Each is called at most once. Each scrape calls read, a method of
// [report.Server], which is safe for concurrent use.

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
func (s *Set) FollowConnections(read func() ([]report.ServiceCount, error)) {
	connections := scraped.Counter("nftproxy_service_connections_total", "New connections to the frontends of a service port.",
		append(portLabels, "frontend", familyLabel)...)
	s.Add(scraped.New(func(out scraped.Values) error {
		counts, err := read()
		if err != nil {
			return fmt.Errorf("read connections of services: %w", err)
		}
		for _, n := range counts {
			out.Add(connections, float64(n.Connections), append(portValues(n.Port), frontendLabels[n.Kind], n.Family.String())...)
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
func (s *Set) FollowLimits(dropped, unlimited func() ([]report.LimitCount, error)) {
	follow := func(name, help string, read func() ([]report.LimitCount, error)) {
		connections := scraped.Counter(name, help, append(portLabels, "frontend", familyLabel, "limit")...)
		s.Add(scraped.New(func(out scraped.Values) error {
			counts, err := read()
			if err != nil {
				return fmt.Errorf("read counters of limits: %w", err)
			}
			for _, n := range counts {
				out.Add(connections, float64(n.Connections), append(portValues(n.Port), frontendLabels[n.Kind], n.Family.String(), n.Limit.String())...)
			}
			return nil
		}, connections))
	}
	follow("nftproxy_service_connections_limited_total", "New connections to the frontends of a service port that a limit has dropped.", dropped)
	follow("nftproxy_service_connections_unlimited_total",
		"New connections to the frontends of a service port that passed without a limit of clients, because it remembers no more clients.", unlimited)
}

// FollowRefusals exports the connections that the rules have refused.
func (s *Set) FollowRefusals(read func() ([]report.RefusalCount, error)) {
	refused := scraped.Counter("nftproxy_refused_connections_total", "New connections that the rules have refused, by reason and Service.",
		"reason", "namespace", "service")
	s.Add(scraped.New(func(out scraped.Values) error {
		counts, err := read()
		if err != nil {
			return fmt.Errorf("read refused connections: %w", err)
		}
		for _, n := range counts {
			out.Add(refused, float64(n.Refused), n.Reason.String(), n.Service.Namespace, n.Service.Name)
		}
		return nil
	}, refused))
}
