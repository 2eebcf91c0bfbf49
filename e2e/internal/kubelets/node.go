package kubelets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Node is a node of a cluster.
type Node struct {
	Name       string
	IPv4, IPv6 string // empty if the cluster lacks the family
	Kubelet    *Process
	Containerd *Process
	Proxy      *Process // if it runs beside the kubelet and not as a pod

	c          *Cluster
	index      int    // from 1
	dir        string // of its files
	kubeconfig string
	init       *Process
	space      *space
}

// addNode prepares the files of a node.
func (c *Cluster) addNode(index int) (*Node, error) {
	n := &Node{Name: fmt.Sprintf("n%d", index), c: c, index: index}
	if c.Families.has4() {
		n.IPv4 = node4(index)
	}
	if c.Families.has6() {
		n.IPv6 = node6(index)
	}
	n.dir = filepath.Join(c.Dir, n.Name)
	c.NodeList = append(c.NodeList, n)
	var err error
	if n.kubeconfig, err = c.UserConfig("system:node:"+n.Name, "system:nodes"); err != nil {
		return nil, err
	}
	for file, content := range map[string]string{
		"containerd.toml":                     containerdConfig,
		"kubelet.yaml":                        n.kubeletConfig(),
		"upper/etc/cni/net.d/10-ptp.conflist": n.cniConfig(),
		// The machine's own can lack ::1.
		"upper/etc/hosts":       "127.0.0.1 localhost\n::1 localhost\n",
		"upper/etc/resolv.conf": "nameserver " + c.Families.first(control4, control6) + "\n",
	} {
		file = filepath.Join(n.dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Start starts the node: its namespaces, containerd and kubelet. A node that was
// killed starts with the files that it had.
func (n *Node) Start(ctx context.Context) error {
	if err := n.makeCgroups(); err != nil {
		return err
	}
	if err := n.startInit(ctx); err != nil {
		return err
	}
	if err := n.connect(); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := n.StartContainerd(ctx); err != nil {
		return err
	}
	if err := n.importImages(); err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	return n.StartKubelet()
}

// startInit makes the namespaces of the node and arranges its mounts.
func (n *Node) startInit(ctx context.Context) error {
	ready := filepath.Join(n.dir, "ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cmd := exec.Command(n.c.Programs.Path("init"), n.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	var err error
	if n.init, err = start(n.c.Control, n.c.Logs, n.Name, cmd); err != nil {
		return err
	}
	err = waitFor(ctx, time.Minute, "mounts of node "+n.Name, func() error {
		_, err := os.Stat(ready)
		return err
	})
	if err != nil {
		return err
	}
	n.space, err = enter(n.init.Cmd.Process.Pid)
	return err
}

// connect links the node to the bridge of the control plane, with routes to the
// pods of all nodes.
func (n *Node) connect() error {
	link := fmt.Sprintf(`
		ip link add %s type veth peer name eth0 netns %d
		ip link set %[1]s master br0 up
		`, n.Name, n.init.Cmd.Process.Pid)
	own := `
		ip link set lo up
		sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0
		sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
		ip link set eth0 up
		`
	// Every namespace has all routes of its families.
	route := func(i int) (text string) {
		if n.c.Families.has4() {
			text += fmt.Sprintf("ip route replace %s via %s\n", nodePods4(i), node4(i))
		}
		if n.c.Families.has6() {
			text += fmt.Sprintf("ip route replace %s via %s\n", nodePods6(i), node6(i))
		}
		return text
	}
	if n.IPv4 != "" {
		own += "ip addr add " + n.IPv4 + "/24 dev eth0\nip route add default via " + control4 + "\n"
	}
	if n.IPv6 != "" {
		own += "ip addr add " + n.IPv6 + "/64 dev eth0 nodad\nip route add default via " + control6 + "\n"
	}
	for i := range n.c.Nodes {
		if i+1 != n.index {
			own += route(i + 1)
		}
	}
	if err := script(n.c.Control, link+route(n.index)); err != nil {
		return err
	}
	return script(n.space, own)
}

// StartContainerd starts containerd and waits until it answers.
func (n *Node) StartContainerd(ctx context.Context) (err error) {
	if n.Containerd, err = n.run("containerd", "containerd", "--config", filepath.Join(n.dir, "containerd.toml"), "--log-level", "warn"); err != nil {
		return err
	}
	return waitFor(ctx, 30*time.Second, "containerd of "+n.Name, func() error {
		_, err := n.Output("ctr", "version")
		return err
	})
}

// StartKubelet starts the kubelet.
func (n *Node) StartKubelet() (err error) {
	n.Kubelet, err = n.run("kubelet", "kubelet", "--config", filepath.Join(n.dir, "kubelet.yaml"), "--kubeconfig", n.kubeconfig,
		"--hostname-override", n.Name, "--node-ip", n.c.Families.list(n.IPv4, n.IPv6), "--cert-dir", "/var/lib/kubelet/pki", "--v=2")
	return err
}

// importImages gives containerd the images, unless it has kept them.
func (n *Node) importImages() error {
	const kept = "/var/lib/kubelet/images-imported"
	var imports string
	for _, archive := range n.c.Programs.Images {
		imports += fmt.Sprintf("%s -n k8s.io images import --snapshotter overlayfs %s >/dev/null\n", n.c.Programs.Path("ctr"), archive)
	}
	return script(n.space, fmt.Sprintf("[ ! -e %s ] || exit 0\n%stouch %[1]s", kept, imports))
}

// run starts a program of the cluster on the node.
func (n *Node) run(name, program string, args ...string) (*Process, error) {
	return start(n.space, n.c.Logs, name+"-"+n.Name, n.command(n.c.Programs.Path(program), args...))
}

// Output runs a command on the node and returns what it prints. A program of the
// cluster goes before one of the machine.
func (n *Node) Output(command string, args ...string) (string, error) {
	if own := n.c.Programs.Path(command); !strings.Contains(command, "/") {
		if _, err := os.Stat(own); err == nil {
			command = own
		}
	}
	return output(n.space, n.command(command, args...))
}

// Do runs f in the network of the node. Sockets that f makes stay in it.
func (n *Node) Do(f func() error) error { return n.space.do(f) }

// command finds programs of the cluster, such as containerd's shim, and CNI plugins.
func (n *Node) command(command string, args ...string) *exec.Cmd {
	cmd := exec.Command(command, args...)
	cmd.Env = append(os.Environ(), "PATH="+n.c.Programs.OwnDir+":"+n.c.Programs.Dir+":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
	return cmd
}

// Kill ends all processes of the node, as a loss of power would.
func (n *Node) Kill() error {
	if n.init == nil {
		return nil
	}
	n.init.Kill()
	if n.space != nil {
		n.space.close()
	}
	n.init, n.space, n.Proxy = nil, nil, nil
	return removeCgroups(filepath.Join(n.c.cgroups, n.Name))
}

// PID is the process id of the node's first process.
func (n *Node) PID() int { return n.init.Cmd.Process.Pid }
