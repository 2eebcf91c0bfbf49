package names

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNameInHosts: a problem with a name says that the hosts file has it (19.7).
func TestNameInHosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("10.128.0.2 App.example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dns, s := newFaulty(t), web("app.example.com")
	dns.set("app.example.com", "A", reply{})
	dns.set("app.example.com", "AAAA", reply{})
	e := follow(t, Config{Servers: []netip.AddrPort{dns.address}, HostsFile: file})
	e.await(s)
	e.awaitStatus("failure", func(s Status) bool { return s.Err != nil })
	if got := e.Problems(time.Now()); len(got) != 1 || !strings.Contains(got[0].Message, "; the hosts file has it, with 10.128.0.2, and is not read: write the address") {
		t.Errorf("problems %+v", got)
	}
}
