package test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// quickCheck finds a dead endpoint in a fraction of a second.
const quickCheck = "{tcp, interval: 500ms, timeout: 200ms, fall: 3, rise: 2}"

// ward is a cluster of which the test starts and stops the servers.
type ward struct {
	*cluster
	servers map[*netlab.Host]*netlab.Echo
}

func newWard(t *testing.T, pods int) *ward {
	t.Helper()
	t.Parallel()
	lab := netlab.TestLab(t, pods)
	w := &ward{&cluster{lab, t, t.TempDir() + "/services.yaml", clusterCIDR}, make(map[*netlab.Host]*netlab.Echo)}
	w.revive(lab.Pods...)
	t.Cleanup(func() { w.kill(w.Pods...) })
	return w
}

// revive starts the servers of some pods.
func (w *ward) revive(pods ...*netlab.Host) {
	w.t.Helper()
	for _, p := range pods {
		var err error
		if w.servers[p], err = p.Echo(echoPort); err != nil {
			w.t.Fatal(err)
		}
	}
}

// kill stops the servers of some pods: connections are refused.
func (w *ward) kill(pods ...*netlab.Host) {
	w.t.Helper()
	for _, p := range pods {
		if s := w.servers[p]; s != nil {
			if err := s.Close(); err != nil {
				w.t.Error(err)
			}
			delete(w.servers, p)
		}
	}
}

// silence makes pods drop all packets to the port, as a machine without power does.
func (w *ward) silence(pods ...*netlab.Host) {
	w.t.Helper()
	for _, p := range pods {
		for _, command := range []string{"add table inet silence", "add chain inet silence in { type filter hook input priority 0; }",
			fmt.Sprintf("add rule inet silence in th dport %d drop", echoPort)} {
			if err := p.Run(exec.Command("nft", command)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// answered waits until these pods answer, and no other, over all protocols and families.
func (w *ward) answered(s service, pods ...*netlab.Host) {
	w.t.Helper()
	var want []string
	for _, p := range pods {
		want = append(want, p.Name)
	}
	slices.Sort(want)
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			eventually(w.t, func() error {
				var got []string
				for range 4 * max(1, len(want)) {
					a, err := w.Client.Ask(network, s.clusterIP(family), silence)
					if err != nil {
						return fmt.Errorf("%s %s: %w", network, family, err)
					}
					got = append(got, a.Name)
				}
				slices.Sort(got)
				if got = slices.Compact(got); !slices.Equal(got, want) {
					return fmt.Errorf("%s %s: %s answer, want %s", network, family, got, want)
				}
				return nil
			})
		}
	}
}

// load makes requests until stop returns how many there were, at least 100, and which
// failed: those that had no answer within a time, 0 stands for a generous one.
func (w *ward) load(s service, wait time.Duration) (stop func() (requests int, failed []error)) {
	var done atomic.Bool
	var running sync.WaitGroup
	var requests int
	var failed []error
	running.Go(func() {
		for requests < 100 || !done.Load() {
			requests++
			if _, err := w.Client.Ask("tcp", s.clusterIP(model.Families[requests%2]), wait); err != nil {
				failed = append(failed, err)
			}
		}
	})
	return func() (int, []error) {
		done.Store(true)
		running.Wait()
		return requests, failed
	}
}

func checked(check string, pods ...*netlab.Host) service {
	return service{Name: "web", N: 1, Pods: pods, Annotations: map[string]string{"nftproxy.dev/health-check": check}}
}

// TestHealthFailover: 3.22, 3.24, 3.25. One of three endpoints dies under load, by
// refusing connections or in silence: requests fail only until it is left out, over all
// its ports and protocols, and UDP flows move to another one. It returns when it answers
// again, and a connection of a client to a living endpoint notices nothing.
func TestHealthFailover(t *testing.T) {
	for _, how := range []string{"refused", "silent"} {
		t.Run(how, func(t *testing.T) {
			w := newWard(t, 3)
			web := checked(quickCheck, w.Pods...)
			w.write(web)
			d := w.start()
			w.answered(web, w.Pods...)
			flows := openFlows(t, w.Client, web.clusterIP)
			stop := w.load(web, silence)
			switch how {
			case "refused":
				w.kill(w.Pods[1])
			default:
				w.silence(w.Pods[1])
			}
			w.answered(web, w.Pods[0], w.Pods[2])
			if requests, failed := stop(); len(failed) == 0 {
				t.Errorf("none of %d requests failed: there was no load", requests)
			}
			stop = w.load(web, 0)
			for _, f := range flows {
				switch {
				case f.peer != w.Pods[1].Name:
					f.goesOn(t, "another endpoint has died")
				case f.network == "udp":
					eventually(t, func() error {
						a, err := f.Ask()
						if err == nil && a.Name == w.Pods[1].Name {
							err = errors.New("the dead endpoint answers")
						}
						return err
					})
				}
			}
			w.answered(web, w.Pods[0], w.Pods[2])
			if requests, failed := stop(); len(failed) > 0 {
				t.Errorf("%d of %d requests failed after the failover: %v", len(failed), requests, failed)
			}
			for _, want := range []string{"endpoint fails its health check", "service=default/web", "endpoint=" + w.Pods[1].IPv4.String(), "endpoint=" + w.Pods[1].IPv6.String()} {
				if !strings.Contains(d.log.String(), want) {
					t.Errorf("the log lacks %q", want)
				}
			}
			if how == "refused" {
				w.revive(w.Pods[1])
				w.answered(web, w.Pods...)
			}
			d.stop(t)
		})
	}
}

// TestRequestsInProgress: 9.27. A client whose request for a connection went to a silent
// endpoint reaches another one when it sends the request again.
func TestRequestsInProgress(t *testing.T) {
	w := newWard(t, 2)
	web := checked(quickCheck, w.Pods...)
	w.write(web)
	d := w.start()
	w.answered(web, w.Pods...)
	w.silence(w.Pods[1])
	var requests sync.WaitGroup
	for _, family := range model.Families {
		for range 8 {
			requests.Go(func() {
				a, err := w.Client.Ask("tcp", web.clusterIP(family), patience)
				if err != nil || a.Name != w.Pods[0].Name {
					t.Errorf("%s: answer of %s, %v; want one of %s", family, a.Name, err, w.Pods[0].Name)
				}
			})
		}
	}
	requests.Wait()
	d.stop(t)
}

// TestBackups: 3.22, 3.23. A backup endpoint takes over when all others are dead, and
// stands by again when one is back.
func TestBackups(t *testing.T) {
	w := newWard(t, 3)
	web := checked(quickCheck, w.Pods...)
	web.Backups = w.Pods[2:]
	w.write(web)
	w.start()
	w.answered(web, w.Pods[:2]...)
	w.kill(w.Pods[0])
	w.answered(web, w.Pods[1])
	w.kill(w.Pods[1])
	w.answered(web, w.Pods[2])
	w.revive(w.Pods[0])
	w.answered(web, w.Pods[0])
}

// TestAllFail: 3.22. If the checks of all endpoints fail, all are used, or connections are
// rejected if the check says so; the endpoints work here, and the check is wrong.
func TestAllFail(t *testing.T) {
	w := newWard(t, 2)
	web := checked("{tcp, port: 9, interval: 500ms, timeout: 200ms}", w.Pods...)
	w.write(web)
	d := w.start()
	eventually(t, func() error {
		if n := strings.Count(d.log.String(), "endpoint fails its health check"); n != 4 {
			return fmt.Errorf("%d of 4 endpoints fail", n)
		}
		return nil
	})
	w.answered(web, w.Pods...)
	web.Annotations["nftproxy.dev/health-check"] = "{tcp, port: 9, interval: 500ms, timeout: 200ms, whenAllFail: reject}"
	w.write(web)
	for _, family := range model.Families {
		eventually(t, func() error { return wantRefused(w.Client, "tcp", web.clusterIP(family)) })
	}
}

// TestRestartWithDeadEndpoint: 3.26. A restart brings no dead endpoint back, neither with
// the rules of the earlier run nor without.
func TestRestartWithDeadEndpoint(t *testing.T) {
	w := newWard(t, 3)
	web := checked(quickCheck, w.Pods...)
	w.write(web)
	d := w.start()
	w.answered(web, w.Pods...)
	w.kill(w.Pods[1])
	w.answered(web, w.Pods[0], w.Pods[2])
	stop := w.load(web, 0)
	for range 3 {
		d.stop(t)
		d = w.start()
		eventually(t, func() error {
			if !strings.Contains(d.log.String(), "endpoint fails its health check") {
				return errors.New("no first results")
			}
			return nil
		})
		w.answered(web, w.Pods[0], w.Pods[2])
	}
	if requests, failed := stop(); len(failed) > 0 {
		t.Errorf("%d of %d requests failed: %v", len(failed), requests, failed)
	}
	d.stop(t)

	w.mustRun(0, exec.Command(binary, "cleanup"))
	d = w.start()
	eventually(t, func() error { // the first rules
		_, err := w.Client.Ask("tcp", web.clusterIP(model.IPv4), silence)
		return err
	})
	stop = w.load(web, 0)
	w.answered(web, w.Pods[0], w.Pods[2])
	if requests, failed := stop(); len(failed) > 0 {
		t.Errorf("%d of %d requests failed after the first rules: %v", len(failed), requests, failed)
	}
}

// TestChecksWhileFileIsBroken: 3.28. Health counts while a file cannot be read.
func TestChecksWhileFileIsBroken(t *testing.T) {
	w := newWard(t, 2)
	web := checked(quickCheck, w.Pods...)
	w.write(web)
	d := w.start()
	w.answered(web, w.Pods...)
	if err := os.WriteFile(w.file, []byte("kind: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if !strings.Contains(d.log.String(), "source cannot be used") {
			return errors.New("the broken file is not noticed")
		}
		return nil
	})
	w.kill(w.Pods[0])
	w.answered(web, w.Pods[1])
	w.revive(w.Pods[0])
	w.answered(web, w.Pods...)
	if log := d.log.String(); strings.Contains(log, "source usable again") {
		t.Error("the log says that the broken file can be used")
	}
}

// TestCheckOfOwnAddress: 3.29. An endpoint with the address of a Service of this machine
// is not checked through the rules, which would reach another endpoint.
func TestCheckOfOwnAddress(t *testing.T) {
	w := newWard(t, 1)
	if err := w.Node.AddAddress(netip.MustParseAddr("198.51.100.1")); err != nil {
		t.Fatal(err)
	}
	web := checked(quickCheck, w.Pods...)
	web.ExternalIPs, web.Target = []string{"198.51.100.1", "2001:db8:1::1"}, 0
	loop := checked(quickCheck, &netlab.Host{Name: "loop", IPv4: netip.MustParseAddr("198.51.100.1"), IPv6: netip.MustParseAddr("2001:db8:1::1")})
	loop.Name, loop.N, loop.Target = "loop", 2, servicePort
	w.write(web, loop)
	d := w.start()
	w.answered(web, w.Pods...)
	for _, address := range []string{"198.51.100.1:80", "[2001:db8:1::1]:80"} {
		eventually(t, func() error {
			if !strings.Contains(d.log.String(), fmt.Sprintf(`is an address of a Service of this node" endpoint=%s service=default/web`, address)) {
				return fmt.Errorf("no warning about %s", address)
			}
			return nil
		})
	}
	w.kill(w.Pods...)
	eventually(t, func() error {
		if !strings.Contains(d.log.String(), "service=default/web endpoint="+w.Pods[0].IPv6.String()) {
			return errors.New("the endpoint does not fail")
		}
		return nil
	})
	if log := d.log.String(); strings.Contains(log, "service=default/loop") {
		t.Errorf("the check went through the address of the other Service:\n%s", log)
	}
}
