package faults

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	servicePort = 80
	echoPort    = 8080
	// patience is how long a test waits for what must come.
	patience = 2 * time.Minute
)

// service is a dual stack Service with the ports TCP and UDP 80. N is the
// number that its addresses end with.
type service struct {
	name   string
	n      int
	pods   []*netlab.Host
	sticky bool // clients keep their endpoints
	// changes is set if endpoints go away while clients dial. A datagram on its
	// way to one of them may be lost with its connection tracking entry.
	changes bool
}

func (s service) clusterIP(f model.Family) netip.AddrPort {
	format := "10.96.0.%d"
	if f == model.IPv6 {
		format = "fd00:10:96::%d"
	}
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(format, s.n)), servicePort)
}

// manifest returns the objects of a service in YAML.
func (s service) manifest() string {
	affinity := corev1.ServiceAffinityNone
	if s.sticky {
		affinity = corev1.ServiceAffinityClientIP
	}
	var out strings.Builder
	fmt.Fprintf(&out, `---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec:
  clusterIPs: ["%s", "%s"]
  sessionAffinity: %s
  ports: [{name: tcp, protocol: TCP, port: 80}, {name: udp, protocol: UDP, port: 80}]
`, s.name, s.clusterIP(model.IPv4).Addr(), s.clusterIP(model.IPv6).Addr(), affinity)
	for _, f := range model.Families {
		fmt.Fprintf(&out, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-v%[2]d, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: tcp, protocol: TCP, port: 8080}, {name: udp, protocol: UDP, port: 8080}]
endpoints: [`, s.name, f, f)
		for _, pod := range s.pods {
			fmt.Fprintf(&out, `{addresses: ["%s"], nodeName: node}, `, pod.Address(f))
		}
		out.WriteString("]\n")
	}
	return out.String()
}

// node is a laboratory with echo servers on its pods, and an input file.
type node struct {
	*netlab.Lab
	t       *testing.T
	file    string
	flags   []string // for all commands, beyond those that they need
	clients int      // made so far
}

func newNode(t *testing.T, pods int) *node {
	t.Helper()
	lab := netlab.TestLab(t, pods)
	if err := lab.EchoOnPods(echoPort); err != nil {
		t.Fatal(err)
	}
	return &node{Lab: lab, t: t, file: filepath.Join(t.TempDir(), "services.yaml")}
}

// in returns the node for use in a subtest.
func (n *node) in(t *testing.T) *node {
	sub := *n
	sub.t = t
	return &sub
}

// write replaces the input file.
func (n *node) write(services ...service) {
	n.t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: node}\nstatus: {addresses: [{type: InternalIP, address: %s}]}\n", n.Node.IPv4)
	for _, s := range services {
		text += s.manifest()
	}
	next := n.file + ".new" // the program never sees a half
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(next, n.file); err != nil {
		n.t.Fatal(err)
	}
}

// arguments returns those of a command of the program on the input file.
func (n *node) arguments(command string) []string {
	return append([]string{command, "-f", n.file, "--hostname-override", "node",
		"--cluster-cidr", netlab.ClusterCIDRv4.String() + "," + netlab.ClusterCIDRv6.String()}, n.flags...)
}

// run runs a command on the node and returns its exit status and output.
func (n *node) run(name string, args ...string) (status int, said string) {
	n.t.Helper()
	cmd := exec.Command(name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Node.Run(cmd); cmd.ProcessState == nil {
		n.t.Fatalf("%s: %v", cmd, err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// apply has the program apply services, once.
func (n *node) apply(services ...service) {
	n.t.Helper()
	n.write(services...)
	if status, said := n.run(binary, n.arguments("apply")...); status != 0 {
		n.t.Fatal(said)
	}
}

// nft returns what nft prints on the node.
func (n *node) nft(args ...string) string {
	n.t.Helper()
	status, said := n.run("nft", args...)
	if status != 0 {
		n.t.Fatalf("nft %s: %s", strings.Join(args, " "), said)
	}
	return said
}

// applied waits until the rules are those of a fresh render of the file.
func (n *node) applied() {
	n.t.Helper()
	n.eventually(func() error {
		if status, said := n.run(binary, n.arguments("diff")...); status != 0 {
			return fmt.Errorf("diff ends with status %d: %s", status, said)
		}
		return nil
	})
}

// followed waits until the rules are those of the file, except for idle lanes.
func (n *node) followed() {
	n.t.Helper()
	n.eventually(func() error {
		if status, said := n.run(binary, n.arguments("diff")...); !onlyIdle(status, said) {
			return fmt.Errorf("diff ends with status %d: %s", status, said)
		}
		return nil
	})
}

// onlyIdle reports whether diff finds nothing but lanes that no frontend uses:
// a partial change leaves them.
func onlyIdle(status int, said string) bool {
	return status == 0 || strings.Contains(said, "\n0 to add, 0 to change, ") &&
		strings.Count(said, "\n  - ") == len(laneRemoved.FindAllString(said, -1))
}

var laneRemoved = regexp.MustCompile(`\n  - chain (?:(?:local-)?sticky-)?(?:rr|random|hash)-`)

// eventually waits until f returns nil.
func (n *node) eventually(f func() error) {
	n.t.Helper()
	netlab.Eventually(n.t, patience, f)
}
