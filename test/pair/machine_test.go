package pair

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// machine is one of the two.
type machine struct {
	*netlab.Host
	l   *lab
	dir string // of its files

	flags []string // of nftproxy

	keepalived, conntrackd, nftproxy *process
}

// machine makes a machine with address n in both networks, and its files.
func (l *lab) machine(name string, n int) *machine {
	l.t.Helper()
	m := &machine{Host: l.host(name, n, "front", "back"), l: l, dir: l.t.TempDir()}
	m.TestScript(l.t, "ip route add default via 192.0.2.1 && ip route add default via 2001:db8:1::1")
	for from, to := range map[string]string{
		"keepalived.conf": "keepalived/keepalived.conf", "connections": "keepalived/connections",
		"conntrackd.conf": "conntrackd/conntrackd.conf", "sysctl.conf": "sysctl.conf",
		"nftables.conf": "nftables.conf", "web.yaml": "web.yaml",
	} {
		m.copy(to, from)
	}
	if name == "b" {
		const ends = "IPv4_address %s\n\t\tIPv4_Destination_Address %s\n"
		m.edit("conntrackd/conntrackd.conf", fmt.Sprintf(ends, "10.255.0.1", "10.255.0.2"), fmt.Sprintf(ends, "10.255.0.2", "10.255.0.1"))
	}
	if err := os.Mkdir(filepath.Join(m.dir, "run"), 0o755); err != nil {
		l.t.Fatal(err)
	}
	return m
}

// copy copies a file of deploy/pair.
func (m *machine) copy(to, from string) {
	m.l.t.Helper()
	from, to = filepath.Join("../../deploy/pair", from), filepath.Join(m.dir, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		m.l.t.Fatal(err)
	}
	info, err := os.Stat(from)
	if err != nil {
		m.l.t.Fatal(err)
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, info.Mode())
	}
	if err != nil {
		m.l.t.Fatal(err)
	}
}

// edit replaces texts in a file, which must occur once.
func (m *machine) edit(name string, oldnew ...string) {
	m.l.t.Helper()
	for i := 0; i < len(oldnew); i += 2 {
		if n := m.editAll(name, oldnew[i], oldnew[i+1]); n != 1 {
			m.l.t.Fatalf("%s has %q %d times", name, oldnew[i], n)
		}
	}
}

// editAll replaces a text in a file wherever it occurs, and returns how often it does.
func (m *machine) editAll(name, old, new string) int {
	m.l.t.Helper()
	path := filepath.Join(m.dir, name)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.ReplaceAll(string(b), old, new)), 0)
	}
	n := strings.Count(string(b), old)
	if err != nil || n == 0 {
		m.l.t.Fatalf("%s: replace %q: %v, it occurs %d times", name, old, err, n)
	}
	return n
}

// configure sets the sysctls and loads the rules that are not nftproxy's.
func (m *machine) configure() {
	m.l.t.Helper()
	m.TestScript(m.l.t, `sed -n 's/^\([a-z][^ ]*\) = /\1 /p' "$1" | while read -r key value; do echo "$value" >"/proc/sys/$(echo "$key" | tr . /)"; done`,
		filepath.Join(m.dir, "sysctl.conf"))
	m.NFT(m.l.t, "-f", filepath.Join(m.dir, "nftables.conf"))
}

// process is a program that runs on a machine.
type process struct {
	cmd *exec.Cmd
	log netlab.LogBuffer
}

// inPlace runs a program with the files of a machine where they belong, in a mount
// namespace of its own.
const inPlace = `dir=$1
shift
mount --make-rprivate /
mount --bind "$dir/keepalived" /etc/keepalived
mount --bind "$dir/conntrackd" /etc/conntrackd
mount --bind "$dir/run" /run
PATH=$PATH:/usr/sbin:/sbin exec "$@"`

// command returns a command that sees the files of the machine.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	return exec.Command("unshare", append([]string{"--mount", "sh", "-ec", inPlace, "sh", m.dir, name}, args...)...)
}

// start starts a program, which ends with the test.
func (m *machine) start(name string, args ...string) *process {
	m.l.t.Helper()
	p := &process{cmd: m.command(name, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.WaitDelay = time.Second
	if err := m.Start(p.cmd); err != nil {
		m.l.t.Fatal(err)
	}
	m.l.t.Cleanup(func() {
		p.kill()
		if m.l.t.Failed() {
			fmt.Fprintf(m.l.t.Output(), "log of %s on %s:\n%s\n", name, m.Name, p.log.String())
		}
	})
	return p
}

// kill ends the process without giving it a chance to clean up.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// stop ends the process as systemctl does.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

func (m *machine) startNFTProxy() {
	m.l.t.Helper()
	m.nftproxy = m.start(binary, append([]string{"run", "-f", filepath.Join(m.dir, "web.yaml"), "--hostname-override", "machine-" + m.Name}, m.flags...)...)
	netlab.Eventually(m.l.t, patience, func() error {
		_, err := m.Output("nft", "list", "map", "ip6", "nftproxy", "endpoints")
		return err
	})
}

func (m *machine) startConntrackd() {
	m.l.t.Helper()
	m.conntrackd = m.start("conntrackd")
	netlab.Eventually(m.l.t, patience, func() error {
		out, err := m.ask("conntrackd", "-s")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// ask runs a command that sees the files of the machine, and returns what it prints.
func (m *machine) ask(name string, args ...string) (string, error) {
	var out netlab.LogBuffer
	cmd := m.command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := m.Run(cmd)
	return out.String(), err
}

// startKeepalived starts it, and waits for the state of the machine.
func (m *machine) startKeepalived(state string) {
	m.l.t.Helper()
	m.keepalived = m.start("keepalived", "--dont-fork", "--log-console", "--no-syslog")
	m.enters(state, 1)
}

// enters waits until keepalived has logged a state a number of times.
func (m *machine) enters(state string, times int) {
	m.l.t.Helper()
	netlab.Eventually(m.l.t, patience, func() error {
		if n := strings.Count(m.keepalived.log.String(), "Entering "+state+" STATE"); n < times {
			return fmt.Errorf("keepalived on %s entered %s %d times, want %d", m.Name, state, n, times)
		}
		return nil
	})
}

// knows waits until the copy of the other machine's connections has so many flows of each
// kind.
func (m *machine) knows(flows int) {
	m.l.t.Helper()
	if m.conntrackd == nil {
		return
	}
	netlab.Eventually(m.l.t, patience, func() error {
		out, err := m.ask("conntrackd", "-e")
		tcp, udp := strings.Count(out, "ESTABLISHED"), strings.Count(out, "\nudp ")
		if err != nil || tcp < 2*flows || udp < flows-1 {
			return fmt.Errorf("%s knows %d TCP and %d UDP connections, %v, want %d and %d", m.Name, tcp, udp, err, 2*flows, flows)
		}
		return nil
	})
}

// owns waits until the machine has the virtual addresses.
func (m *machine) owns() {
	m.l.t.Helper()
	netlab.Eventually(m.l.t, patience, func() error {
		has, err := m.addresses()
		for _, a := range virtual {
			if !has[a] && err == nil {
				err = fmt.Errorf("%s does not have %s", m.Name, a)
			}
		}
		return err
	})
}

func (m *machine) addresses() (map[netip.Addr]bool, error) {
	out := make(map[netip.Addr]bool)
	err := m.Do(func() error {
		all, err := net.InterfaceAddrs()
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out[p.Addr()] = true
			}
		}
		return err
	})
	return out, err
}

// unplug takes the machine off both networks and the link to the other one. It does not
// notice: its links stay up.
func (m *machine) unplug() {
	m.l.t.Helper()
	m.l.wires.TestScript(m.l.t, `ip link set "$1-front" nomaster; ip link set "$1-back" nomaster`, m.Name)
	m.NFT(m.l.t, "add table netdev cut; add chain netdev cut in { type filter hook ingress device sync priority 0; policy drop; }")
	m.NFT(m.l.t, "add chain netdev cut out { type filter hook egress device sync priority 0; policy drop; }")
}

// plug reverts unplug.
func (m *machine) plug() {
	m.l.t.Helper()
	m.NFT(m.l.t, "delete table netdev cut")
	m.l.wires.TestScript(m.l.t, `ip link set "$1-front" master front; ip link set "$1-back" master back`, m.Name)
}
