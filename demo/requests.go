package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"text/tabwriter"

	"github.com/nftproxy/nftproxy/internal/netlab"
)

const (
	serverPort = 8080
	requests   = 12 // to each frontend; the same number for each of 3 and of 2
)

// frontends are the addresses that the sample serves.
var frontends = []struct{ kind, address string }{
	{"load balancer IP", "203.0.113.10:80"},
	{"ClusterIP", "10.96.0.10:80"},
	{"NodePort", "192.0.2.1:30080"},
}

// serve starts a web server on a pod, which answers with its name.
func serve(pod *netlab.Host) error {
	l, err := pod.Listen("tcp", netip.AddrPortFrom(pod.IPv4, serverPort).String())
	if err != nil {
		return err
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, pod.Name)
	}))
	return nil
}

// get sends a request from the client, on a connection of its own.
func (d *demo) get(address string) (string, error) {
	transport := &http.Transport{DialContext: d.lab.Client.DialContext, DisableKeepAlives: true}
	client := http.Client{Transport: transport, Timeout: patience}
	resp, err := client.Get("http://" + address)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// balanced sends requests to each frontend, shows who answered, and
// checks that the endpoints took turns.
func (d *demo) balanced(endpoints int) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d requests to\t\tanswered by", requests)
	for _, pod := range d.lab.Pods {
		fmt.Fprintf(w, "\t%s", pod.Name)
	}
	fmt.Fprintln(w)
	var failed error
	for _, f := range frontends {
		count := map[string]int{}
		var names []string
		for range requests {
			name, err := d.get(f.address)
			if err != nil {
				return fmt.Errorf("request to %s: %w", f.kind, err)
			}
			count[name]++
			names = append(names, name)
		}
		fmt.Fprintf(w, "%s\t%s\t", f.kind, f.address)
		for _, pod := range d.lab.Pods {
			fmt.Fprintf(w, "\t%d", count[pod.Name])
		}
		fmt.Fprintln(w)
		failed = errors.Join(failed, inTurn(names, endpoints))
	}
	return errors.Join(w.Flush(), failed)
}

// inTurn checks that the endpoints took turns: none was asked more than twice
// more often than another.
func inTurn(names []string, endpoints int) error {
	count := map[string]int{}
	for _, name := range names {
		count[name]++
	}
	least, most := len(names), 0
	for _, n := range count {
		least, most = min(least, n), max(most, n)
	}
	if len(count) != endpoints || most-least > 2 {
		return fmt.Errorf("answers %v are not from %d endpoints in turn", names, endpoints)
	}
	return nil
}

// refused checks that a service without endpoints refuses connections
// immediately.
func (d *demo) refused() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range frontends {
		c, err := d.lab.Client.DialContext(ctx, "tcp", f.address)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("connection to %s: got %v, want %w", f.kind, err, syscall.ECONNREFUSED)
		}
		fmt.Fprintf(w, "%s\t%s\t%v\n", f.kind, f.address, syscall.ECONNREFUSED)
	}
	return w.Flush()
}
