package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	vip     = "203.0.113.10"
	confDir = "/etc/nftproxy/conf.d/"
	webFile = confDir + "web.yaml" // that the documented commands make
	dropIn  = "/etc/systemd/system/nftproxy.service.d/test.conf"
)

func runSteps() error {
	if err := makeLab(); err != nil {
		return fmt.Errorf("make clients and servers: %w", err)
	}
	for _, s := range []struct {
		name string
		run  func() error
	}{
		{"the three commands of docs/install.md", install},
		{"follow files", follow},
		{"a server dies", death},
		{"the sandbox", sandbox},
		{"kill -9 under load", kill},
		{"a hanging process", hang},
		{"a relay over restarts", relay},
		{"mistakes in files, over restarts", mistakes},
		{"reload", reload},
		{"upgrade under load", upgrade},
		{"remove and purge", remove},
	} {
		begin := time.Now()
		if err := s.run(); err != nil {
			journal, _ := output(exec.Command("journalctl", "--no-pager", "-n", "60", "-u", "nftproxy"))
			return fmt.Errorf("%s: %w\n%s", s.name, err, journal)
		}
		fmt.Printf("ok: %s (%.0f s)\n", s.name, time.Since(begin).Seconds())
	}
	fmt.Println(passed)
	return nil
}

// sh runs a line of shell and returns what it prints.
func sh(format string, args ...any) (string, error) {
	out, err := output(exec.Command("sh", "-c", fmt.Sprintf(format, args...)))
	return strings.TrimSpace(out), err
}

// says returns an error unless a line of shell prints a text.
func says(want, format string, args ...any) error {
	out, err := sh(format, args...)
	if err != nil {
		return err
	}
	if !strings.Contains(out, want) {
		return fmt.Errorf("%s: no %q in %q", fmt.Sprintf(format, args...), want, out)
	}
	return nil
}

func property(name string) string {
	out, _ := sh("systemctl show nftproxy --value -p %s", name)
	return out
}

// serves waits until clients of an address are answered by each of some servers.
func serves(address string, names ...string) error {
	return eventually(func() error {
		for range 2 {
			out, err := sh("for i in 1 2 3 4; do ip netns exec client curl -sS --max-time 10 http://%s; done", address)
			if err != nil {
				return err
			}
			for _, name := range names {
				if !strings.Contains(out, name) {
					return fmt.Errorf("%s does not answer: %q", name, out)
				}
			}
		}
		return nil
	})
}

// install runs the documented commands, one after the other. The last one may come
// before the rules: a person is slower.
func install() error {
	text, err := os.ReadFile(documented)
	if err != nil {
		return err
	}
	commands := strings.Split(string(text), "\n")
	if len(commands) != 3 {
		return fmt.Errorf("%d commands are documented", len(commands))
	}
	if _, err := sh("mkdir /root/new && mv /root/nftproxy_0.0.1-*.deb /root/new"); err != nil {
		return err
	}
	run := func(i int) error { _, err := sh("cd /root/new && %s", commands[i]); return err }
	if err := run(0); err != nil {
		return err
	}
	err = errors.Join(
		says("active", "systemctl is-active nftproxy"), says("enabled", "systemctl is-enabled nftproxy"),
		eventually(func() error { return says("0 Services", "systemctl show -p StatusText nftproxy") }),
		says("nftproxy v0.0.1 ", "nftproxy version"),
		says("", "nftproxy status"), says("nftproxy-run", "ls /usr/share/man/man1"))
	if err := errors.Join(err, run(1), eventually(func() error { return run(2) })); err != nil {
		return err
	}
	// The service has turned on forwarding, which other clients need. The emulated machine
	// may take more than the usual second to answer a health check.
	err = errors.Join(says("1", "cat /proc/sys/net/ipv4/ip_forward"),
		says("", "sed -i 's/^check: http$/check: {http: , interval: 2s, timeout: 2s, fall: 5}/' %s", webFile))
	return errors.Join(err, serves(vip, "server1", "server2"), eventually(func() error {
		return says("1 Balance, 2 servers", "systemctl show -p StatusText nftproxy")
	}))
}

func follow() error {
	web, err := os.ReadFile(webFile)
	if err != nil {
		return err
	}
	for _, address := range []string{"203.0.113.20", vip} {
		next := strings.ReplaceAll(string(web), vip, address)
		if err := errors.Join(os.WriteFile(webFile, []byte(next), 0o644), serves(address, "server1", "server2")); err != nil {
			return err
		}
	}
	return nil
}

// death: the health check takes a server out, and in again.
func death() error {
	stopServer(2)
	if err := eventually(func() error {
		return says("1 Balance, 1 server", "systemctl show -p StatusText nftproxy")
	}); err != nil {
		return err
	}
	err := underLoad(func() error { return serves(vip, "server1") })
	return errors.Join(err, startServer(2), serves(vip, "server1", "server2"))
}

// sandbox: what the unit may do suffices, and is not more.
func sandbox() error {
	score, err := sh("systemd-analyze security --no-pager nftproxy | tail -1")
	if err != nil {
		return err
	}
	fmt.Println(score)
	capabilities, err := sh("grep CapEff /proc/%s/status", property("MainPID"))
	if err != nil || !strings.HasSuffix(capabilities, "0000000000001000") {
		return fmt.Errorf("capabilities: %s, %v; want CAP_NET_ADMIN alone", capabilities, err)
	}
	// Settings of the network can be written, by a flag of the file for flags.
	if err := os.WriteFile("/etc/default/nftproxy", []byte("NFTPROXY_OPTIONS=\"--conntrack-udp-timeout=61s\"\n"), 0o644); err != nil {
		return err
	}
	if _, err := sh("systemctl restart nftproxy"); err != nil {
		return err
	}
	return errors.Join(says("61", "cat /proc/sys/net/netfilter/nf_conntrack_udp_timeout"), serves(vip, "server1", "server2"))
}

// underLoad runs f while a client makes connections, of which none may fail.
func underLoad(f func() error) error {
	client := exec.Command("ip", "netns", "exec", "client", "/root/packages", "load", vip)
	input, err := client.StdinPipe()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		out, err := output(client)
		fmt.Print(out)
		if err == nil && !strings.Contains(out, " 0 failed") {
			err = errors.New("connections failed")
		}
		done <- err
	}()
	err = f()
	return errors.Join(err, input.Close(), <-done)
}

// restarts waits for another process after f.
func restarts(f func(pid string) error) error {
	before := property("MainPID")
	if err := f(before); err != nil {
		return err
	}
	return eventually(func() error {
		if pid, state := property("MainPID"), property("ActiveState"); pid == before || pid == "0" || state != "active" {
			return fmt.Errorf("process %s, before %s, %s", pid, before, state)
		}
		return nil
	})
}

func kill() error {
	return underLoad(func() error {
		return restarts(func(pid string) error { _, err := sh("kill -9 %s", pid); return err })
	})
}

func hang() error {
	if err := errors.Join(setDropIn("WatchdogSec=10s"), says("", "systemctl restart nftproxy")); err != nil {
		return err
	}
	err := underLoad(func() error {
		return restarts(func(pid string) error { _, err := sh("kill -STOP %s", pid); return err })
	})
	return errors.Join(err, says("Watchdog timeout", "journalctl --no-pager -u nftproxy"),
		resetDropIn(), says("", "systemctl restart nftproxy"))
}

// relay: systemd keeps the port of the relay while it restarts the process, so that clients wait
// instead of being refused, and closes it when the unit is stopped.
func relay() error {
	const address, file = "203.0.113.30", confDir + "relayed.yaml"
	balance := "kind: Balance\nname: relayed\nlisten: " + address + ":80\nbackends: [10.0.1.2:8080, 10.0.2.2:8080]\n" +
		"check: {tcp, timeout: 2s, fall: 5}\nrelay: true\n"
	if err := errors.Join(os.WriteFile(file, []byte(balance), 0o644), serves(address, "server1", "server2"), keepsFiles(2)); err != nil {
		return err
	}
	// The second process must not come before the client.
	if err := setDropIn("RestartSec=20s"); err != nil {
		return err
	}
	err := restarts(func(pid string) error {
		if _, err := sh("kill -9 %s", pid); err != nil {
			return err
		}
		if err := eventually(func() error { return says("auto-restart", "systemctl show -p SubState nftproxy") }); err != nil {
			return err
		}
		return says("server", "ip netns exec client curl -sS --max-time 100 http://%s", address)
	})
	// Connections that are open end with the process, which is curl's code 52 or 56. 7: refused.
	_, restartErr := sh("systemctl restart nftproxy & while kill -0 $!; do ip netns exec client curl -s -o /dev/null --max-time 100 http://%s; "+
		"[ $? != 7 ] || exit 7; done; wait", address)
	if err := errors.Join(err, restartErr, serves(address, "server1", "server2"), keepsFiles(2)); err != nil {
		return err
	}
	if _, err := sh("systemctl stop nftproxy"); err != nil {
		return err
	}
	return errors.Join(
		says("code 7", "ip netns exec client curl -s --max-time 100 http://%s; echo code $?", address), keepsFiles(0),
		resetDropIn(), says("", "systemctl start nftproxy"), serves(address, "server1", "server2"), os.Remove(file), keepsFiles(0))
}

// keepsFiles waits until systemd keeps so many files for the next process: for each family of the
// addresses a port, and the socket that lets connections pass to it.
func keepsFiles(n int) error {
	return eventually(func() error {
		if kept := property("NFileDescriptorStore"); kept != strconv.Itoa(n) {
			return fmt.Errorf("systemd keeps %s files, want %d", kept, n)
		}
		return nil
	})
}

// setDropIn changes a setting of the unit.
func setDropIn(setting string) error {
	if err := errors.Join(os.MkdirAll(filepath.Dir(dropIn), 0o755), os.WriteFile(dropIn, []byte("[Service]\n"+setting+"\n"), 0o644)); err != nil {
		return err
	}
	_, err := sh("systemctl daemon-reload")
	return err
}

func resetDropIn() error {
	if err := os.Remove(dropIn); err != nil {
		return err
	}
	_, err := sh("systemctl daemon-reload")
	return err
}

// mistakes: a bad file, and a file that becomes bad, keep no Service from being served,
// also after the rules are gone as after a reboot.
func mistakes() error {
	const broken = "kind: Service\nspec: ["
	web, err := os.ReadFile(webFile)
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(confDir+"new.yaml", []byte(broken), 0o644), os.WriteFile(webFile, []byte(broken), 0o644)); err != nil {
		return err
	}
	if err := eventually(func() error { return says("Source: "+confDir, "systemctl show -p StatusText nftproxy") }); err != nil {
		return err
	}
	if _, err := sh("systemctl stop nftproxy && nftproxy cleanup && systemctl start nftproxy"); err != nil {
		return err
	}
	err = errors.Join(serves(vip, "server1", "server2"),
		says("new.yaml", "nftproxy status || test $? = 1"), says("last valid content", "nftproxy status -o json || test $? = 1"))
	return errors.Join(err, os.Remove(confDir+"new.yaml"), os.WriteFile(webFile, web, 0o644),
		eventually(func() error { return says("healthy", "nftproxy status") }))
}

func reload() error {
	before := property("MainPID")
	if _, err := sh("systemctl reload nftproxy"); err != nil {
		return err
	}
	err := eventually(func() error { return says("reading the source again", "journalctl --no-pager -u nftproxy") })
	if now := property("MainPID"); now != before {
		err = errors.Join(err, fmt.Errorf("process %s is %s after a reload", before, now))
	}
	return err
}

func upgrade() error {
	err := underLoad(func() error {
		return restarts(func(string) error {
			_, err := sh("apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold /root/nftproxy_0.0.2-*.deb")
			return err
		})
	})
	return errors.Join(err, says("nftproxy v0.0.2 ", "nftproxy version"), says("v0.0.2", "nftproxy status -o json"),
		says("conntrack-udp", "cat /etc/default/nftproxy"), serves(vip, "server1", "server2"))
}

func remove() error {
	if _, err := sh("apt-get remove -y nftproxy"); err != nil {
		return err
	}
	if out, err := sh("nft list tables"); err != nil || strings.Contains(out, "nftproxy") {
		return fmt.Errorf("tables %q, %v after the removal", out, err)
	}
	if err := errors.Join(says("web.yaml", "ls "+confDir), says("valid", "ls /var/lib/nftproxy")); err != nil {
		return err
	}
	if _, err := sh("apt-get purge -y nftproxy"); err != nil {
		return err
	}
	_, err := os.Stat("/var/lib/nftproxy")
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state after the purge: %v", err)
	}
	return says("web.yaml", "ls "+confDir)
}
