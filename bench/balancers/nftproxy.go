package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/model"
)

// nftproxyPath is the program that is measured.
var nftproxyPath = "bin/nftproxy"

// nftproxy follows one file with all services, or a directory with a file for each.
type nftproxy struct {
	directory bool
	fast      bool // established connections take the fast path
	relay     bool // the process relays them, as a proxy does
}

func (n nftproxy) name() string {
	switch {
	case n.directory:
		return "nftproxy with a file each"
	case n.fast:
		return "nftproxy with its fast path"
	case n.relay:
		return "nftproxy with relay"
	}
	return "nftproxy"
}
func (nftproxy) program() string { return nftproxyPath }
func (nftproxy) version() string { return version(1, nftproxyPath, "--version") }
func (n nftproxy) measures() []string {
	switch {
	case n.directory:
		return []string{"services"}
	case n.fast:
		return []string{"traffic"}
	case n.relay:
		return []string{"traffic", "failover"}
	}
	return measures
}

// clients outside of this range are masqueraded.
const inside = "10.128.0.0/16"

func (n nftproxy) start(r *room, s setting) (running, error) {
	input := r.file("services.yaml")
	if n.directory {
		input = r.file("services")
		if err := os.Mkdir(input, 0o755); err != nil {
			return nil, err
		}
		for i := range s.services {
			if err := r.write(n.file(i), n.objects(s, i)); err != nil {
				return nil, err
			}
		}
	} else if err := r.write("services.yaml", n.all(s)); err != nil {
		return nil, err
	}
	args := []string{"run", "-f", input, "--hostname-override", "node", "--cluster-cidr", inside}
	if n.fast {
		args = append(args, "--fast-path=all")
	}
	c, err := r.daemon(r.Node, nftproxyPath, args...)
	if err != nil {
		return nil, err
	}
	if n.fast {
		if err := r.awaitFastPath(s); err != nil {
			return nil, err
		}
	}
	return process{[]*child{c}, []way{{n.wayName(), func(s setting, i, _ int, _ netip.AddrPort) error {
		if n.directory {
			return r.write(n.file(i), n.objects(s, i))
		}
		return r.write("services.yaml", n.all(s))
	}}}}, nil
}

// awaitFastPath waits until the kernel has passed its test, and takes connections.
func (r *room) awaitFastPath(s setting) error {
	return eventually(func() error {
		return r.Node.Do(func() error {
			for _, own := range s.services {
				f := model.Frontend{Address: own.to.Addr(), Protocol: model.TCP, Port: own.to.Port()}
				switch takes, err := fastpath.Takes(f); {
				case err != nil:
					return err
				case !takes:
					return fmt.Errorf("connections to %s do not take the fast path", f)
				}
			}
			return nil
		})
	})
}

func (n nftproxy) wayName() string {
	if n.directory {
		return "rename of its file"
	}
	return "rename of the file of all services"
}

func (nftproxy) file(i int) string { return fmt.Sprintf("services/service-%d.yaml", i) }

func (n nftproxy) all(s setting) string {
	var text strings.Builder
	for i := range s.services {
		text.WriteString(n.objects(s, i))
	}
	return text.String()
}

// balance returns a Balance with a relay, which no Service of Kubernetes has.
func (nftproxy) balance(s setting, i int) string {
	own := s.services[i]
	check := ""
	if s.checked {
		check = fmt.Sprintf("check: {tcp, interval: %s, timeout: 1s, rise: %d, fall: %d}\n", checkInterval, checkRise, checkFall)
	}
	var servers []string
	for _, e := range own.endpoints {
		servers = append(servers, e.String())
	}
	return fmt.Sprintf("---\nkind: Balance\nname: service-%d\nlisten: %s\nbackends: [%s]\nrelay: true\n%s", i, own.to, strings.Join(servers, ", "), check)
}

// objects returns a Service and its EndpointSlice, or a Balance.
func (n nftproxy) objects(s setting, i int) string {
	if n.relay {
		return n.balance(s, i)
	}
	own := s.services[i]
	var endpoints []string
	for _, e := range own.endpoints {
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%s]}", e.Addr()))
	}
	check := ""
	if s.checked {
		check = fmt.Sprintf(`, annotations: {nftproxy.dev/health-check: "{tcp, interval: %s, timeout: 1s, rise: %d, fall: %d}"}`,
			checkInterval, checkRise, checkFall)
	}
	address := own.to.Addr().String()
	name := fmt.Sprintf("service-%d", own.to.Port())
	if len(s.services) > 2 {
		name = fmt.Sprintf("service-%d", i)
	}
	return fmt.Sprintf(`---
{kind: Service, apiVersion: v1, metadata: {name: %s%s}, spec: {clusterIP: %s, ports: [{port: %d}]}}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: %s-1, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{port: %d}]
endpoints: [%s]
`, name, check, address, own.to.Port(), name, name, own.endpoints[0].Port(), strings.Join(endpoints, ", "))
}

// process is a balancer of one or more processes.
type process struct {
	children []*child
	changes  []way
}

func (p process) daemons() []*child { return p.children }
func (p process) ways() []way       { return p.changes }
