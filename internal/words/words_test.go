package words_test

import (
	"encoding/json"
	"testing"

	"github.com/nftproxy/nftproxy/internal/words"
)

// TestText: 11.27. Words are replaced as words, and not in flags, names, values and paths.
func TestText(t *testing.T) {
	for _, c := range []struct{ kubernetes, balance, mixed string }{
		{"no Service has an endpoint", "no Balance has a server", "no Service or Balance has an endpoint"},
		{"2 endpoints of Services", "2 servers of Balances", "2 endpoints of Services and Balances"},
		{"ENDPOINTS", "SERVERS", "ENDPOINTS"},
		{"203.0.113.0/24 at load balancer IPs", "203.0.113.0/24 at addresses", "203.0.113.0/24 at load balancer IPs"},
		{"counted with --endpoint-metrics", "counted with --endpoint-metrics", "counted with --endpoint-metrics"},
		{`"endpoint" and @endpoints, endpoint=1, kubernetes.io/service-name`, `"endpoint" and @endpoints, endpoint=1, kubernetes.io/service-name`, `"endpoint" and @endpoints, endpoint=1, kubernetes.io/service-name`},
		{"no Service: missing ]: `[an endpoint in` of \"the Service\", of 5\" endpoints", "no Balance: missing ]: `[an endpoint in` of \"the Service\", of 5\" servers", "no Service or Balance: missing ]: `[an endpoint in` of \"the Service\", of 5\" endpoints"},
		{"endpoints on other machines or in pods", "servers on other machines", "endpoints on other machines or in pods"},
		{"remove its address from nftproxy.dev/denied-sources", "remove its address from deny", "remove its address from nftproxy.dev/denied-sources"},
		{"neither a pod's nor in a source range; --from names one", "in no list of clients; --from names one", "neither a pod's nor in a source range; --from names one"},
		{"servers and frontends", "servers and frontends", "servers and frontends"},
		{"", "", ""},
	} {
		for in, want := range map[words.Vocabulary]string{words.Kubernetes: c.kubernetes, words.Balance: c.balance, words.Mixed: c.mixed} {
			if got := in.Text(c.kubernetes); got != want {
				t.Errorf("%q in the words %q: %q, want %q", c.kubernetes, in, got, want)
			}
		}
	}
}

// TestSprintf: arguments are no words of the program.
func TestSprintf(t *testing.T) {
	if got := words.Balance.Sprintf("the Service %s has %s", "default/endpoint", "Services"); got != "the Balance default/endpoint has Services" {
		t.Error(got)
	}
	if got := words.Balance.Errorf("no Service %s", "endpoint").Error(); got != "no Balance endpoint" {
		t.Error(got)
	}
	for n, want := range map[int]string{0: "0 servers", 1: "1 server", 2: "2 servers"} {
		if got := words.Balance.Count(n, "endpoint"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	if got := words.Mixed.Count(2, "Service"); got != "2 Services and Balances" {
		t.Error(got)
	}
}

// TestAmong: the words of several objects are of what all of them are.
func TestAmong(t *testing.T) {
	for _, c := range []struct {
		all, balances int
		want          words.Vocabulary
	}{{0, 0, words.Kubernetes}, {2, 0, words.Kubernetes}, {2, 1, words.Mixed}, {2, 2, words.Balance}} {
		if got := words.Among(c.all, c.balances); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.balances, c.all, got, c.want)
		}
	}
}

// TestJSON: documents have a name, or nothing for the words of Kubernetes, and names of later
// versions can be read.
func TestJSON(t *testing.T) {
	type document struct {
		Words words.Vocabulary `json:"words,omitzero"`
	}
	for text, want := range map[string]words.Vocabulary{"{}": words.Kubernetes, `{"words":"balance"}`: words.Balance, `{"words":"mixed"}`: words.Mixed} {
		var d document
		if err := json.Unmarshal([]byte(text), &d); err != nil || d.Words != want {
			t.Errorf("%s: %q, %v", text, d.Words, err)
		}
		if got, err := json.Marshal(document{want}); err != nil || string(got) != text {
			t.Errorf("%q: %s, %v", want, got, err)
		}
	}
	d := document{words.Balance}
	if err := json.Unmarshal([]byte(`{"words":"other"}`), &d); err != nil || d.Words != words.Kubernetes {
		t.Errorf("of a later version: %q, %v", d.Words, err)
	}
}
