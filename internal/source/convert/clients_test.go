package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/utils/net"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestSources reads the lists of clients: 4.75 to 4.78.
func TestSources(t *testing.T) {
	const (
		allow      = "metadata.annotations[nftproxy.dev/source-ranges]: "
		deny       = "metadata.annotations[nftproxy.dev/denied-sources]: "
		closed     = "warning: " + deny + "has a wrong entry, which could stand for any client: no client can connect until it is corrected"
		closedList = "warning: " + allow + "has no valid entry: no client can connect until one is corrected"
		neither    = " is neither an IP address nor a range: write it like 192.0.2.7, 10.0.0.0/8 or fd00::/64"
	)
	var all []conversion
	for _, c := range []struct {
		name, lists, want string
		errors            []string
	}{
		{"ranges and addresses", `allow: "10.0.0.0/8,192.0.2.7,fd00::/64,2001:db8::1"`, "Limited true, Allowed [10.0.0.0/8 192.0.2.7/32 2001:db8::1/128 fd00::/64]", nil},
		{"white space", `allow: " 10.0.0.0/8 ,\n\t192.0.2.7\n"`, "Limited true, Allowed [10.0.0.0/8 192.0.2.7/32]", nil},
		{"empty entries", `allow: ",10.0.0.0/8,,"`, "Limited true, Allowed [10.0.0.0/8]", nil},
		{"ranges inside others, and twice", `allow: "10.1.0.0/16,10.0.0.0/8,10.1.0.0/16,10.0.0.1"`, "Limited true, Allowed [10.0.0.0/8]", nil},
		{"1.33, 1.34, 1.35", `allow: "010.1.2.3/8,::ffff:192.0.2.7,::ffff:198.51.100.0/120"`, "Limited true, Allowed [10.0.0.0/8 192.0.2.7/32 198.51.100.0/24]", nil},
		{"all clients of a family", `allow: "0.0.0.0/0,10.0.0.0/8"`, "Limited true, Allowed [0.0.0.0/0]", nil},
		{"none of the Service's family", `allow: "fd00::/64"`, "Limited true, Allowed [fd00::/64]",
			[]string{"warning: " + allow + "has no IPv4 range: no client can connect to 10.96.0.1; list ranges of that family"}},
		{"denied", `deny: "10.1.0.0/16,fd00::7"`, "Denied [10.1.0.0/16 fd00::7/128]", nil},
		{"both", `allow: 10.0.0.0/8, deny: 10.1.0.0/16`, "Limited true, Allowed [10.0.0.0/8], Denied [10.1.0.0/16]", nil},
		{"no denied clients", `deny: " , "`, "", nil},
		{"4.78 an empty list admits none", `allow: ""`, "Limited true", []string{"warning: " + allow + "is empty: no client can connect; list addresses or ranges, or remove the annotation"}},
		{"4.78 a wrong entry admits none", `allow: "10.0.0.0/8,10.0.0.0/33"`, "Limited true, Allowed [10.0.0.0/8]",
			[]string{allow + `"10.0.0.0/33" has a wrong prefix length: use 0 to 32 after the '/'`}},
		{"4.78 no valid entry", `allow: web.example`, "Limited true", []string{allow + `"web.example"` + neither, closedList}},
		{"4.78 a wrong entry denies all", `deny: "10.0.0.0/8,10.0.0/8"`, "Denied [0.0.0.0/0 ::/0]", []string{deny + `"10.0.0/8"` + neither, closed}},
		{"blanks as separators", `allow: 10.0.0.1 10.0.0.2`, "Limited true", []string{allow + `"10.0.0.1 10.0.0.2"` + neither, closedList}},
		{"4.78 no client", `deny: "0.0.0.0"`, "Denied [0.0.0.0/0 ::/0]", []string{deny + `"0.0.0.0" is not a client address: write 0.0.0.0/0 for all clients`, closed}},
		{"loopback", `allow: "10.0.0.1,127.0.0.1"`, "Limited true, Allowed [10.0.0.1/32]",
			[]string{allow + `"127.0.0.1" is not an address that clients have: write it like 192.0.2.7 or fd00::1`}},
		{"a zone", `allow: "10.0.0.1,fe80::1%eth0"`, "Limited true, Allowed [10.0.0.1/32]", []string{allow + `"fe80::1%eth0" has a zone: leave out the part from '%' on`}},
	} {
		lists := strings.NewReplacer("allow:", setting.AllowedClients.Annotation+":", "deny:", setting.DeniedClients.Annotation+":").Replace(c.lists)
		all = append(all, conversion{c.name, `metadata: {annotations: {` + lists + `}}`, c.want, c.errors})
	}
	run(t, `{metadata: {name: web, namespace: default}, spec: {clusterIP: 10.96.0.1}}`, all, func(s *corev1.Service) (any, []*manifest.FieldError) {
		service, found := Service(s, "")
		return []string{strings.ReplaceAll(strings.TrimSpace(sourcetest.Describe(service.Extra().Sources)), "\n", ", ")}, found
	})
}

// FuzzSources checks that no text admits a client that a correct list would not: a wrong
// entry admits none, and a wrong entry of denied clients denies all.
func FuzzSources(f *testing.F) {
	for _, text := range []string{"", ",", "10.0.0.0/8", "10.0.0.0/8,x", "0.0.0.0/0, ::/0", "::ffff:10.0.0.0/104", "::/0/", "fe80::1%x", "1.2.3.4/-1", "010.1.1.1"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, allow, deny string) {
		var found Findings
		s := found.readSources(&metav1.ObjectMeta{Annotations: map[string]string{setting.AllowedClients.Annotation: allow, setting.DeniedClients.Annotation: deny}})
		if !s.Limited {
			t.Fatal("not limited")
		}
		for _, p := range append(s.Allowed, s.Denied...) {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
				t.Errorf("range %v", p)
			}
		}
		wrong := false
		for _, e := range found.First {
			if !sourcetest.IsPlain(e.Error()) {
				t.Errorf("a finding that cannot be printed: %q", e.Error())
			}
			wrong = wrong || !e.Warning && e.Field == annotationField(setting.DeniedClients.Annotation)
		}
		var alone Findings
		denied := alone.readSources(&metav1.ObjectMeta{Annotations: map[string]string{setting.DeniedClients.Annotation: deny}})
		if wrong && fmt.Sprint(denied.Denied) != fmt.Sprint(everyClient) {
			t.Errorf("%q denies %v", deny, denied.Denied)
		}
		for _, p := range s.Allowed { // an entry names each client
			if !slices.ContainsFunc(strings.Split(allow, ","), func(entry string) bool { return meansClient(strings.TrimSpace(entry), p) }) {
				t.Errorf("%q allows %v", allow, p)
			}
		}
	})
}

// meansClient reports whether an entry is a range, or the address of its only client.
func meansClient(entry string, p netip.Prefix) bool {
	if _, n, err := utilnet.ParseCIDRSloppy(entry); err == nil {
		ones, _ := n.Mask.Size()
		first, _ := netip.AddrFromSlice(n.IP)
		return first.Unmap() == p.Addr() && (ones == p.Bits() || ones == p.Bits()+96)
	}
	a, _ := netip.AddrFromSlice(utilnet.ParseIPSloppy(entry))
	return a.Unmap() == p.Addr() && p.IsSingleIP()
}
