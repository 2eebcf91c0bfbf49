package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// passed is the last line of the report if all steps passed.
const passed = "PASSED"

// guest is the program in the machine.
func guest(args []string) int {
	var err error
	switch {
	case args[0] == "test":
		err = runSteps()
	case args[0] == "serve" && len(args) == 3:
		err = serve(args[1], args[2])
	case args[0] == "load" && len(args) == 2:
		err = load(args[1])
	default:
		err = fmt.Errorf("unknown arguments %q", args)
	}
	if err != nil {
		fmt.Println("FAILED:", err)
		return 1
	}
	return 0
}

// serve answers requests with a name.
func serve(address, name string) error {
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) }))
}

// load makes connections, one after the other, until its input ends, and prints how many
// there were and how many failed. One more connection stays open in the meantime.
func load(address string) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = os.Stdin.Read(make([]byte, 1))
	}()
	kept := &http.Client{Timeout: patience}
	fresh := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	first, err := get(kept, address)
	if err != nil {
		return fmt.Errorf("first request: %w", err)
	}
	for total, failed := 0, 0; ; total++ {
		if _, err := get(fresh, address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed++
		}
		select {
		case <-ended:
			if name, err := get(kept, address); err != nil || name != first {
				return fmt.Errorf("the open connection led to %s, now to %s, %v", first, name, err)
			}
			fmt.Printf("%d connections, %d failed\n", total+1, failed)
			return nil
		default:
		}
	}
}

func get(c *http.Client, address string) (string, error) {
	r, err := c.Get("http://" + address)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body := make([]byte, 100)
	n, _ := r.Body.Read(body)
	return strings.TrimSpace(string(body[:n])), nil
}

// makeLab makes a client and two servers in network namespaces around the machine.
func makeLab() error {
	for i, name := range []string{"client", "server1", "server2"} {
		net := fmt.Sprintf("10.0.%d", i)
		for _, line := range []string{
			"netns add " + name,
			"link add " + name + " type veth peer name eth0 netns " + name,
			"addr add " + net + ".1/24 dev " + name,
			"link set " + name + " up",
			"-n " + name + " addr add " + net + ".2/24 dev eth0",
			"-n " + name + " link set eth0 up",
			"-n " + name + " route add default via " + net + ".1",
		} {
			if _, err := output(exec.Command("ip", strings.Fields(line)...)); err != nil {
				return err
			}
		}
		if i > 0 {
			if err := startServer(i); err != nil {
				return err
			}
		}
	}
	// As every machine, this one has a default route: without any, the system sends
	// nothing to an address that it does not know, not even if rules replace it.
	_, err := output(exec.Command("ip", "route", "add", "default", "via", "10.0.0.2"))
	return err
}

// servers are the processes of the servers by their numbers, from 1.
var servers [3]*exec.Cmd

func startServer(i int) error {
	name, address := fmt.Sprintf("server%d", i), fmt.Sprintf("10.0.%d.2:8080", i)
	servers[i] = exec.Command("ip", "netns", "exec", name, "/root/packages", "serve", address, name)
	if err := servers[i].Start(); err != nil {
		return err
	}
	return reachable(address)
}

func stopServer(i int) {
	_ = servers[i].Process.Kill() // "ip netns exec" has become the server
	_ = servers[i].Wait()
}

func reachable(address string) error {
	return eventually(func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// patience is how long the machine, which is slow, may take for anything.
const patience = 2 * time.Minute

func eventually(done func() error) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = done(); err == nil {
			return nil
		}
	}
	return err
}
