// Package commandline runs command lines of nftproxy in the process of a test: by a program that has the commands under
// test alone, so that the test links no others.
package commandline

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
)

// A Program returns the root of a program. Each command line has one of its own, because flags keep their values.
type Program func() *cobra.Command

// Of returns the program that has some commands.
func Of(commands ...func() *cobra.Command) Program {
	return func() *cobra.Command {
		var all []*cobra.Command
		for _, c := range commands {
			all = append(all, c())
		}
		return command.NewProgram("(devel)", &cobra.Command{Use: "nftproxy"}, []command.Group{{Title: command.OtherGroup, Commands: all}})
	}
}

// Result is what a command line did.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command line.
func (p Program) Run(stdin string, args ...string) Result {
	var out, problem bytes.Buffer
	code := cli.Execute(p(), args, strings.NewReader(stdin), &out, &problem)
	return Result{code, out.String(), problem.String()}
}

// RunIn runs a command line in a network namespace.
func (p Program) RunIn(t *testing.T, ns interface{ Do(func() error) error }, args ...string) (r Result) {
	t.Helper()
	if err := ns.Do(func() error { r = p.Run("", args...); return nil }); err != nil {
		t.Fatal(err)
	}
	return r
}

// WriteFile writes a file services.yaml, and returns its path.
func WriteFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "services.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Service is a Service with two endpoints.
const Service = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.128.1.1], nodeName: node-2}
- {addresses: [10.128.1.2], nodeName: node-2}
`

// Node is a Node.
const Node = `
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: zone-a}}
spec: {podCIDRs: [10.128.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.7.1}]}
`

// Misnamed is a Service whose slice has another name for its port.
const Misnamed = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: htpp, port: 8080}]
endpoints: [{addresses: [10.128.0.2]}]
`

// MisnamedWarning is the warning about [Misnamed] on standard input.
const MisnamedWarning = "standard input: document 1 (line 4): Service shop/web: spec.ports[0]: port http has no endpoints: EndpointSlice shop/web-1 has ports: htpp (did you mean http?)\n"
