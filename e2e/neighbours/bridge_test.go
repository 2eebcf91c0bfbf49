package neighbours

import (
	"fmt"
	"testing"
)

// newBridge returns a host with a Service whose endpoints are pods on a bridge,
// and the ways from a third pod there and from an endpoint, which may reach
// itself.
func newBridge(t *testing.T, callIptables string, flags ...string) (h *host, neighbour, itself path) {
	t.Helper()
	h = newHost(t)
	h.flags = append(h.flags, flags...)
	if err := h.AddBridgedPods(2); err != nil {
		t.Fatal(err)
	}
	h.sysctl("net/bridge/bridge-nf-call-iptables", callIptables)
	h.sysctl("net/bridge/bridge-nf-call-ip6tables", callIptables)
	h.echo(h.Bridged[0])
	h.serve(h.Bridged[0])
	h.startProxy()
	return h, path{"pod to a pod of its bridge", h.Bridged[1], clusterIP}, path{"pod to itself", h.Bridged[0], clusterIP}
}

// Replies between pods of one bridge do not pass the node's IP stack, so they are
// not translated back, unless the bridge calls iptables or the client is
// masqueraded.
func TestBridgeNF(t *testing.T) {
	const others = "Clients outside, the node, other pods, and a pod that reaches itself are served in any case."
	for _, c := range []struct {
		name    string
		call    string
		flags   []string
		verdict verdict
		note    string
	}{
		{"on", "1", nil, works, ""},
		{"off", "0", nil, fails, "between pods of the same bridge, because the bridge carries the replies past conntrack. Set the sysctls to 1, " +
			"or `masqueradeAll: true`. " + others},
		{"off, masqueradeAll", "0", []string{"--masquerade-all"}, works, "Endpoints see the node as the client."},
	} {
		t.Run(c.name, func(t *testing.T) {
			what := fmt.Sprintf("pods on a bridge with `net.bridge.bridge-nf-call-iptables=%s` and the same for ip6tables", c.call)
			if len(c.flags) > 0 {
				what += ", and `masqueradeAll: true`"
			}
			finds(t, finding{Group: "Rules of other programs", Neighbour: "bridge", Case: what, Verdict: c.verdict, Note: c.note})
			h, neighbour, itself := newBridge(t, c.call, c.flags...)
			h.answers("any setting", h.Bridged[0].Name, append(h.paths(), itself)...)
			if c.verdict == works {
				h.answers("works", h.Bridged[0].Name, neighbour)
				return
			}
			h.unserved("does not work", neighbour)
			h.sysctl("net/bridge/bridge-nf-call-iptables", "1")
			h.sysctl("net/bridge/bridge-nf-call-ip6tables", "1")
			h.answers("set while it runs", h.Bridged[0].Name, neighbour)
		})
	}
}
