package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

type host = *netlab.Host

const (
	serverPort = 8080
	pods       = 4
	endpoints  = 3  // in the sample: the first pods
	requests   = 12 // to each frontend
)

// frontends are the addresses that the sample serves.
var frontends = []struct{ kind, address string }{
	{"load balancer IP", "203.0.113.10:80"},
	{"ClusterIP", "10.96.0.10:80"},
	{"NodePort", "192.0.2.1:30080"},
}

// serve starts a web server on a pod, which answers with its name.
func (d *demo) serve(pod host) error {
	l, err := pod.Listen("tcp", netip.AddrPortFrom(pod.IPv4, serverPort).String())
	if err != nil {
		return err
	}
	d.servers[pod] = l
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

// balanced sends requests to each frontend, shows who answered, and checks that the
// pods took turns.
func (d *demo) balanced(wanted []host) error {
	var rows []row
	var failed error
	for _, f := range frontends {
		got := answers{}
		for range requests {
			name, err := d.get(f.address)
			if err != nil {
				return fmt.Errorf("request to %s: %w", f.kind, err)
			}
			got[name]++
		}
		rows = append(rows, row{f.kind + " " + f.address, got})
		failed = errors.Join(failed, got.inTurn(wanted))
	}
	d.table(fmt.Sprintf("%d requests each to", requests), rows)
	return failed
}

// answers counts requests by the name that answered.
type answers map[string]int

func (a answers) total() (n int) {
	for _, count := range a {
		n += count
	}
	return n
}

// only checks that these pods answered, and no others.
func (a answers) only(wanted ...host) error {
	rest := a.total()
	for _, pod := range wanted {
		rest -= a[pod.Name]
	}
	if rest != 0 {
		return fmt.Errorf("%d of the answers %v are from others", rest, a)
	}
	return nil
}

// all checks that each of these pods answered, and no others.
func (a answers) all(wanted []host) error {
	for _, pod := range wanted {
		if a[pod.Name] == 0 {
			return fmt.Errorf("no answer from %s: %v", pod.Name, a)
		}
	}
	return a.only(wanted...)
}

// inTurn checks that the pods took turns: none was asked more than twice more often
// than another.
func (a answers) inTurn(wanted []host) error {
	least, most := a.total(), 0
	for _, pod := range wanted {
		least, most = min(least, a[pod.Name]), max(most, a[pod.Name])
	}
	if most-least > 2 {
		return fmt.Errorf("answers %v are not from %d endpoints in turn", a, len(wanted))
	}
	return a.all(wanted)
}

// row is a line of a table of answers.
type row struct {
	name    string
	answers answers
}

// table shows who answered.
func (d *demo) table(title string, rows []row) {
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, title)
	for _, pod := range d.lab.Pods {
		fmt.Fprintf(w, "\t%s", pod.Name)
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprint(w, "  "+r.name)
		for _, pod := range d.lab.Pods {
			count := fmt.Sprint(r.answers[pod.Name])
			if count == "0" {
				count = "-"
			}
			fmt.Fprintf(w, "\t%s", count)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // the report may be cut off; what was checked is not
}

// refused checks that a service without endpoints refuses connections immediately.
func (d *demo) refused() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
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
	err := w.Flush()
	fmt.Fprint(d.out, text.String())
	return err
}
