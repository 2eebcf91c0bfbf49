package test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

var metricsAddress = netip.MustParseAddrPort("127.0.0.1:10249")

// startWith starts the daemon with NodePorts in these ranges, and waits until it
// serves.
func (c *cluster) startWith(ranges string, s service) *daemon {
	c.t.Helper()
	c.flags = append([]string{"--nodeport-addresses", ranges, "--min-sync-period", "0s"}, clusterCIDR...)
	c.write(s)
	d := c.start()
	c.serves(s)
	// The rules are in effect a moment before their full sync is counted.
	c.page("/metrics", `kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1`)
	return d
}

var fullSyncs = regexp.MustCompile(`(?m)^kubeproxy_sync_full_proxy_rules_duration_seconds_count\{ip_family="IPv4"\} (\d+)$`)

// comparisons returns how many full comparisons the daemon has made.
func (c *cluster) comparisons() int {
	c.t.Helper()
	a, err := get(c.Node, "GET", metricsAddress, "/metrics", "")
	if err != nil {
		c.t.Fatal(err)
	}
	m := fullSyncs.FindStringSubmatch(a.body)
	if m == nil {
		c.t.Fatalf("no number of full syncs in the metrics:\n%s", a.body)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// ip runs a script of "ip -batch" on the node.
func (c *cluster) ip(script ...string) {
	c.t.Helper()
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(script, "\n") + "\n")
	c.mustRun(0, cmd)
}

// 6.13, 13.12: pods come and go, each with an interface that has link-local
// addresses and the one that plugins give the node's end. None of them serves
// NodePorts. They cause no full comparison, nor does an address that does serve
// NodePorts.
func TestPodInterfacesCostNoComparison(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	c.startWith("192.0.2.0/24,198.18.0.0/16", web)
	before := c.comparisons()
	for i := range 5 {
		name := fmt.Sprint("cni", i)
		c.ip("link add "+name+" type veth peer name "+name+"-pod", "link set "+name+" up", "link set "+name+"-pod up",
			"addr add 169.254.1.1/32 dev "+name, fmt.Sprintf("addr add fe80::12:%x/64 dev %s nodad", i, name))
		serving := netip.AddrFrom4([4]byte{198, 18, 7, byte(i)}) // to know that the daemon is past the others
		if err := c.Node.AddAddress(serving); err != nil {
			t.Fatal(err)
		}
		c.becomes(c.Pods[0], netip.AddrPortFrom(serving, web.NodePort()), nil)
	}
	if n := c.comparisons(); n != before {
		t.Errorf("%d full comparisons because of addresses", n-before)
	}
}

// 13.12: endpoint changes cause no full comparison.
func TestEndpointChangesCostNoComparison(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.startWith("192.0.2.0/24", web)
	before := c.comparisons()
	for i := range 20 {
		web.Pods = c.Pods[i%2 : i%2+1]
		c.write(web)
		c.answersFrom(web, web.Pods[0].Name)
	}
	if n := c.comparisons(); n != before {
		t.Errorf("%d full comparisons because of endpoints", n-before)
	}
}

// 6.8: addresses are followed even if so many changed while the daemon was
// stopped that the kernel dropped notifications.
func TestAddressesAfterOverflow(t *testing.T) {
	c := newCluster(t, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods}
	d := c.startWith("198.18.0.0/16", web)
	d.signal(t, syscall.SIGSTOP)
	var script []string
	for range 10_000 {
		script = append(script, "addr add 172.16.0.1/32 dev lo", "addr del 172.16.0.1/32 dev lo")
	}
	c.ip(script...)
	c.addSecondAddress() // which is lost
	d.signal(t, syscall.SIGCONT)
	began := time.Now()
	c.becomes(c.Pods[0], netip.AddrPortFrom(secondAddress[model.IPv4], web.NodePort()), nil)
	fmt.Fprintf(t.Output(), "an address is served %v after SIGCONT\n", time.Since(began))
	if !strings.Contains(d.log.String(), "changes of interface addresses were lost") {
		t.Error("the log does not say that changes were lost")
	}
	third := netip.MustParseAddr("198.18.7.3")
	if err := c.Node.AddAddress(third); err != nil {
		t.Fatal(err)
	}
	c.becomes(c.Pods[0], netip.AddrPortFrom(third, web.NodePort()), nil)
}

// 6.10, 10.16: while addresses cannot be listed, the known ones keep serving
// NodePorts and health checks, and no others do. They are listed again as soon
// as possible.
func TestAddressesCannotBeListed(t *testing.T) {
	c := newCluster(t, 1)
	c.addSecondAddress()
	web := service{Name: "web", N: 1, Pods: c.Pods, External: "Local", HealthPort: 32000}
	d := c.startWith("198.18.0.0/16,2001:db8:7::/64", web)
	second, third := netip.AddrPortFrom(secondAddress[model.IPv4], web.NodePort()), netip.AddrPortFrom(netip.MustParseAddr("198.18.7.3"), web.NodePort())
	c.becomes(c.Pods[0], second, nil)
	healthy := func(when string) {
		t.Helper()
		eventually(t, func() error { // the server follows the rules
			conn, err := c.Node.DialContext(t.Context(), "tcp", netip.AddrPortFrom(second.Addr(), 32000).String())
			if err == nil {
				err = conn.Close()
			}
			return err
		})
		for a, want := range map[netip.Addr]bool{second.Addr(): true, c.Node.IPv4: false, loopback[model.IPv4]: false} {
			conn, err := c.Node.DialContext(t.Context(), "tcp", netip.AddrPortFrom(a, 32000).String())
			if err == nil {
				conn.Close()
			}
			if (err == nil) != want {
				t.Errorf("%s: health checks on %s: %v", when, a, err)
			}
		}
	}
	healthy("addresses are known")

	var files unix.Rlimit
	pid := d.cmd.Process.Pid
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &files); err != nil {
		t.Fatal(err)
	}
	none := files
	none.Cur = 3
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &none, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Node.AddAddress(third.Addr()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if !strings.Contains(d.log.String(), "too many open files") {
			return fmt.Errorf("the log does not say that addresses cannot be listed")
		}
		return nil
	})
	ask(t, c.Pods[0], "tcp", second)
	healthy("addresses cannot be listed")
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &files, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.becomes(c.Pods[0], third, nil)
	fmt.Fprintf(t.Output(), "an address is served %v after there are descriptors again\n", time.Since(began))
	c.becomes(c.Pods[0], second, nil)
	healthy("addresses can be listed again")
}

// signal sends a signal to the daemon.
func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
