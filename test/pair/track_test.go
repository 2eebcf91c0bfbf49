package pair

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestTrackFile: 10.31. A machine that no server answers gives the addresses to the other one, with the
// addition to keepalived.conf that docs/high-availability.md has, and stands by when they answer again.
func TestTrackFile(t *testing.T) {
	page, err := os.ReadFile("../../docs/high-availability.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- begin track -->\n\n```\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no addition")
	}
	before, after, _ := strings.Cut(string(found[1]), "vrrp_instance pair {\n")
	l := newLab(t)
	for _, m := range []*machine{l.a, l.b} {
		m.edit("keepalived/keepalived.conf", "vrrp_instance pair {\n", before+"vrrp_instance pair {\n"+after)
		m.editAll("web.yaml", "check: tcp", "check: {tcp, interval: 200ms, fall: 2, rise: 2}")
		m.flags = []string{"--health-directory", "/run/nftproxy/health"}
	}
	l.up(false)
	l.a.NFT(t, "add table inet deaf; add chain inet deaf out { type filter hook output priority 0; }")
	l.a.NFT(t, "add rule inet deaf out tcp dport 8080 drop")
	l.b.owns()
	l.a.enters("FAULT", 1)
	l.chosen()
	l.a.NFT(t, "delete table inet deaf")
	l.a.enters("BACKUP", 2)
	netlab.Eventually(t, patience, func() error {
		_, err := l.a.ask(binary, "status", "--serves", "http")
		return err
	})
	l.b.owns()
}
