package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// openDocument is the part of the document of "top --open" that the test compares.
type openDocument struct {
	APIVersion string
	Document   struct {
		Services, Clients, States struct{ Rows []openRow }
		Other                     *openRow
	}
}

type openRow struct {
	Namespace, Service, Port, Client, Protocol, State string
	Entries                                           int
	Parts                                             []struct {
		Name    string
		Entries int
	}
}

// text returns for example "default/web:tcp tcp 8: ESTABLISHED 6, TIME_WAIT 2".
func (r *openRow) text() string {
	name := r.Client
	switch {
	case r.Service != "":
		name = fmt.Sprintf("%s/%s:%s %s", r.Namespace, r.Service, r.Port, r.Protocol)
	case r.State != "":
		name = r.Protocol + " " + r.State
	}
	var parts []string
	for _, p := range r.Parts {
		parts = append(parts, fmt.Sprint(p.Name, " ", p.Entries))
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %d: %s", name, r.Entries, strings.Join(parts, ", ")), ": ")
}

func rowTexts(rows []openRow) (out []string) {
	for i := range rows {
		out = append(out, rows[i].text())
	}
	return out
}

// TestTopOpen: 11.31, "top --open" counts the entries of connection tracking by Service, client and state: TCP that is
// established, has ended or waits for its first answer, UDP with and without an answer, and what is of no Service.
func TestTopOpen(t *testing.T) {
	w := &ward{cluster: newCluster(t, 3)}
	web, mute := service{Name: "web", N: 1, Pods: w.Pods[:1]}, service{Name: "mute", N: 2, Pods: w.Pods[1:2]}
	w.silence(w.Pods[1])
	w.write(web, mute)
	d := w.start()
	w.has([]string{"status"}, "healthy\n")
	for _, f := range model.Families {
		for range 3 {
			w.keeps(w.Client, "tcp", web.clusterIP(f))
		}
		for range 2 {
			w.keeps(w.Pods[2], "udp", web.clusterIP(f))
		}
		ask(t, w.Client, "tcp", web.clusterIP(f)) // and ends it
		w.Client.TestSYN(t, mute.clusterIP(f))
		silent(t, []*netlab.Host{w.Pods[2]}, "udp", mute.clusterIP(f))
		w.keeps(w.Client, "tcp", endpointOf(w.Pods[0], f))
	}
	services := []string{"default/web:tcp tcp 8: ESTABLISHED 6, TIME_WAIT 2", "default/web:udp udp 4: answered 4",
		"default/mute:tcp tcp 2: SYN_SENT 2", "default/mute:udp udp 2: unanswered 2"}
	clients := []string{"192.0.2.2 6: default/web:tcp 4, default/mute:tcp 1, other 1", "2001:db8::/64 6: default/web:tcp 4, default/mute:tcp 1, other 1",
		"10.128.0.4 3: default/web:udp 2, default/mute:udp 1", "fd00:10:128::/64 3: default/web:udp 2, default/mute:udp 1"}
	w.opens(nil, services, clients, []string{"tcp ESTABLISHED 8", "udp answered 4", "tcp SYN_SENT 2", "tcp TIME_WAIT 2", "udp unanswered 2"}, " 2: tcp ESTABLISHED 2")
	w.opens([]string{"default/mute"}, services[2:], []string{"10.128.0.4 1: default/mute:udp 1", "192.0.2.2 1: default/mute:tcp 1",
		"2001:db8::/64 1: default/mute:tcp 1", "fd00:10:128::/64 1: default/mute:udp 1"}, []string{"tcp SYN_SENT 2", "udp unanswered 2"}, "")
	w.has([]string{"top", "--open"}, "entries of connection tracking: 18 of ", " %)\n\nENTRIES  OF MAX  SERVICE                 STATES\n8        0.0 %   default/web:tcp (tcp)   ESTABLISHED 6, TIME_WAIT 2\n",
		"\n2        0.0 %   other                   tcp ESTABLISHED 2\n\n")
	d.stop(t)
}

// opens waits until "top --open" lists these rows: connections end a moment after their sockets, and the daemon reads at most once a second.
func (w *ward) opens(args, services, clients, states []string, other string) {
	w.t.Helper()
	eventually(w.t, func() error {
		var got openDocument
		out := w.mustRun(0, exec.Command(binary, append([]string{"top", "--open", "-o", "json"}, args...)...))
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.APIVersion != "nftproxy.dev/v2" {
			w.t.Fatalf("%v in %s", err, out)
		}
		has := &got.Document
		diff := cmp.Diff([][]string{services, clients, states}, [][]string{rowTexts(has.Services.Rows), rowTexts(has.Clients.Rows), rowTexts(has.States.Rows)})
		if has.Other != nil {
			diff += cmp.Diff(other, has.Other.text())
		} else if other != "" {
			diff += "no other entries"
		}
		if diff != "" {
			return fmt.Errorf("top --open %s: %s", args, diff)
		}
		return nil
	})
}

// keeps opens a connection that stays until the test ends.
func (c *cluster) keeps(from *netlab.Host, network string, to netip.AddrPort) {
	c.t.Helper()
	f, err := from.Open(network, to, patience)
	if err != nil {
		c.t.Fatalf("%s to %s: %v", network, to, err)
	}
	c.t.Cleanup(func() { f.Close() })
	if _, err := f.Ask(); err != nil {
		c.t.Fatalf("%s to %s: %v", network, to, err)
	}
}
