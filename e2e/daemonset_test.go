package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

const (
	systemNamespace = "kube-system"
	accountDir      = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// inContainer mounts what a pod has to files in a mount namespace of its own,
// and becomes the program of the container. Its arguments are pairs of a
// directory and where to see it, and after "--" the program with its arguments.
// There is nothing else below /var/lib and /var/run; all other files are those
// of this machine.
const inContainer = `set -e
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/run
while [ "$1" != -- ]; do
	mkdir -p "$2"
	mount --bind "$1" "$2"
	shift 2
done
shift
exec "$@"`

// unprivileged becomes a program that has no more rights than its first
// argument says, as in a container that is not privileged and has a read-only
// file system.
const unprivileged = `set -e
mount --bind -o ro /proc/sys /proc/sys
mount --bind -o ro /sys /sys
mount -o remount,bind,ro /
capabilities=$1
shift
exec setpriv --no-new-privs --inh-caps=-all --bounding-set="$capabilities" "$@"`

// startDaemonSet does what a kubelet does with a pod of a DaemonSet: it runs
// the containers with their arguments, ConfigMaps, rights and service account.
// What runs is a program of the tests in place of an image.
func (c *cluster) startDaemonSet(name string, image testbed.Program) *testbed.Process {
	c.T.Helper()
	set, err := c.API.AppsV1().DaemonSets(systemNamespace).Get(c.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	for _, init := range pod.InitContainers {
		p := c.startContainer(pod, init, image)
		if err := p.Cmd.Wait(); err != nil {
			c.T.Fatalf("container %s: %v", init.Name, err)
		}
	}
	return c.startContainer(pod, pod.Containers[0], image)
}

func (c *cluster) startContainer(pod corev1.PodSpec, container corev1.Container, image testbed.Program) *testbed.Process {
	c.T.Helper()
	args := slices.Concat([]string{"-c", inContainer, "sh"}, c.mounts(pod, container), []string{"--"},
		confinement(container.SecurityContext), c.command(container, image))
	cmd := exec.Command("/bin/sh", args...)
	// With this flag Go makes all mounts private as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return testbed.StartCommand(c.T, c.Node, container.Name, cmd)
}

// mounts returns what a container sees other than files of the node: pairs of
// a directory and where it is mounted.
func (c *cluster) mounts(pod corev1.PodSpec, container corev1.Container) []string {
	c.T.Helper()
	var pairs []string
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		pairs = append(pairs, c.writeAccount(pod.ServiceAccountName), accountDir)
	}
	for _, m := range container.VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && v.ConfigMap != nil {
				pairs = append(pairs, c.writeFiles(v.ConfigMap.Name, c.configMap(v.ConfigMap.Name)), m.MountPath)
			}
		}
	}
	return pairs
}

// writeAccount writes the credentials of a service account as a directory.
func (c *cluster) writeAccount(name string) string {
	c.T.Helper()
	request, err := c.API.CoreV1().ServiceAccounts(systemNamespace).CreateToken(c.T.Context(), name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	return c.writeFiles("account-"+name, map[string]string{
		"token": request.Status.Token, "ca.crt": string(c.Authority.Pem()), "namespace": systemNamespace,
	})
}

func (c *cluster) configMap(name string) map[string]string {
	c.T.Helper()
	m, err := c.API.CoreV1().ConfigMaps(systemNamespace).Get(c.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	return m.Data
}

// writeFiles writes a directory, and returns where it is.
func (c *cluster) writeFiles(dir string, files map[string]string) string {
	c.T.Helper()
	dir = filepath.Join(c.Dir, dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		c.T.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			c.T.Fatal(err)
		}
	}
	return dir
}

// confinement returns the command that runs the program of a container with
// the rights that it has.
func confinement(s *corev1.SecurityContext) []string {
	if s != nil && s.Privileged != nil && *s.Privileged {
		return nil
	}
	set := "-all"
	if s != nil && s.Capabilities != nil {
		for _, a := range s.Capabilities.Add {
			set += ",+" + strings.ToLower(string(a))
		}
	}
	return []string{"/bin/sh", "-c", unprivileged, "sh", set}
}

// command returns the program and the arguments of a container. A command that
// the container names is the program by another name.
func (c *cluster) command(container corev1.Container, image testbed.Program) []string {
	c.T.Helper()
	command := append([]string{image.Path}, container.Args...)
	if len(container.Command) > 0 {
		link := filepath.Join(c.writeFiles("image", nil), filepath.Base(container.Command[0]))
		_ = os.Remove(link) // the one of a container before
		if err := os.Symlink(image.Path, link); err != nil {
			c.T.Fatal(err)
		}
		command = slices.Concat([]string{link}, container.Command[1:], container.Args)
	}
	for _, e := range container.Env {
		for i := range command {
			command[i] = strings.ReplaceAll(command[i], "$("+e.Name+")", c.value(e))
		}
	}
	return command
}

// value returns that of a variable: as it stands, or from where it says.
func (c *cluster) value(e corev1.EnvVar) string {
	c.T.Helper()
	switch from := e.ValueFrom; {
	case from == nil:
		return e.Value
	case from.ConfigMapKeyRef != nil:
		return c.configMap(from.ConfigMapKeyRef.Name)[from.ConfigMapKeyRef.Key]
	case from.FieldRef != nil && from.FieldRef.FieldPath == "spec.nodeName":
		return testbed.NodeName
	}
	c.T.Fatalf("variable %s: the tests do not know where its value comes from", e.Name)
	return ""
}
