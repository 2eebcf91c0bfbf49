package kubelets

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// startControlPlane starts etcd, the API server, controllers and scheduler.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := c.controlNetwork(); err != nil {
		return fmt.Errorf("network of the control plane: %w", err)
	}
	if err := c.writeKeys(); err != nil {
		return err
	}
	if err := c.startControl("etcd", "--data-dir", filepath.Join(c.Dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn"); err != nil {
		return err
	}
	if err := c.startControl("kube-apiserver", c.apiserverFlags()...); err != nil {
		return err
	}
	err := waitFor(ctx, 90*time.Second, "API server", func() error {
		return c.API.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	if err := c.startControl("kube-controller-manager", "--kubeconfig", c.Kubeconfig, "--root-ca-file", c.key("ca.crt"),
		"--service-account-private-key-file", c.key("server.key"), "--use-service-account-credentials", "--leader-elect=false",
		// Idle connections of a node that died are dropped by then.
		"--node-monitor-grace-period=20s"); err != nil {
		return err
	}
	return c.startControl("kube-scheduler", "--kubeconfig", c.Kubeconfig, "--leader-elect=false")
}

// startControl starts a program of the control plane.
func (c *Cluster) startControl(program string, args ...string) error {
	p, err := start(c.Control, c.Logs, program, exec.Command(c.Programs.Path(program), args...))
	if err == nil {
		c.processes = append(c.processes, p)
	}
	return err
}

// key is the file of a key or certificate.
func (c *Cluster) key(name string) string { return filepath.Join(c.Dir, name) }

func (c *Cluster) writeKeys() (err error) {
	if c.authority, err = testbed.NewAuthority(); err != nil {
		return err
	}
	var addresses []net.IP
	for _, a := range []string{control4, control6, "10.96.0.1", "fd00:10:96::1", "127.0.0.1"} {
		addresses = append(addresses, net.ParseIP(a))
	}
	certificate, key, err := c.authority.Server(addresses...)
	if err != nil {
		return err
	}
	// With this one the API server identifies itself to kubelets.
	client, clientKey, err := c.authority.Client("kube-apiserver", "system:masters")
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"ca.crt": c.authority.Pem(), "server.crt": certificate, "server.key": key,
		"kubelet-client.crt": client, "kubelet-client.key": clientKey} {
		if err := os.WriteFile(c.key(name), content, 0o600); err != nil {
			return err
		}
	}
	return c.connect()
}

func (c *Cluster) apiserverFlags() []string {
	return []string{
		"--etcd-servers", "http://127.0.0.1:2379",
		"--advertise-address", c.Families.first(control4, control6), "--bind-address", c.Families.first("0.0.0.0", "::"),
		"--service-cluster-ip-range", c.Families.list(services4, services6),
		"--tls-cert-file", c.key("server.crt"), "--tls-private-key-file", c.key("server.key"), "--client-ca-file", c.key("ca.crt"),
		"--authorization-mode", "Node,RBAC", "--allow-privileged",
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", c.key("server.key"), "--service-account-signing-key-file", c.key("server.key"),
		"--kubelet-client-certificate", c.key("kubelet-client.crt"), "--kubelet-client-key", c.key("kubelet-client.key"),
		"--kubelet-preferred-address-types", "InternalIP",
	}
}

// controlNetwork makes the bridge that joins the nodes.
func (c *Cluster) controlNetwork() error {
	return script(c.Control, `
		sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.fib_multipath_hash_policy=1
		sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0 net.ipv6.fib_multipath_hash_policy=1
		ip link set lo up
		ip link add br0 type bridge
		ip link set br0 up
		ip addr add `+control4+`/24 dev br0
		ip addr add `+control6+`/64 dev br0 nodad`)
}

// script runs a shell script until a command fails.
func script(in starter, text string) error {
	_, err := output(in, exec.Command("sh", "-ec", text))
	return err
}
