package test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 12.95: what import makes of HAProxy, keepalived and IPVS serves as they do: one address
// for two servers in turn, a list of denied clients, a client that stays with its server, and
// a server that is disabled.
func TestImportServes(t *testing.T) {
	c := newCluster(t, 3)
	for name, config := range map[string]string{
		"haproxy.cfg": `defaults
    mode tcp
    timeout client 1m
frontend web4
    bind VIP4:PORT
    tcp-request connection reject if { src POD4 }
    default_backend servers4
backend servers4
    balance leastconn
    server a A4:ECHO check port ECHO weight 200
    server b B4:ECHO check port ECHO weight 200
    server c CLIENT4:1 disabled
listen web6
    bind VIP6:PORT
    tcp-request connection reject if { src POD6 }
    server a A6:ECHO
    server b B6:ECHO
`,
		"keepalived.conf": `virtual_server VIP4 PORT {
    lb_algo wlc
    lb_kind DR
    real_server A4 ECHO {
        TCP_CHECK {
            connect_timeout 3
        }
    }
    real_server B4 ECHO {
        TCP_CHECK {
            connect_timeout 3
        }
    }
}
virtual_server VIP6 PORT {
    real_server A6 ECHO {
    }
    real_server B6 ECHO {
    }
}
`,
		"ipvsadm.save": `-A -t VIP4:PORT -s wrr
-a -t VIP4:PORT -r A4:ECHO -g -w 2
-a -t VIP4:PORT -r B4:ECHO -g -w 2
-A -t [VIP6]:PORT -s wlc
-a -t [VIP6]:PORT -r [A6]:ECHO -g -w 1
-a -t [VIP6]:PORT -r [B6]:ECHO -g -w 1
`,
	} {
		replace := []string{"PORT", fmt.Sprint(servicePort), "ECHO", fmt.Sprint(echoPort)}
		for _, f := range model.Families {
			n := string(f.String()[3])
			for place, address := range map[string]netip.Addr{"VIP": vip[f], "A": c.Pods[0].Address(f), "B": c.Pods[1].Address(f), "POD": c.Pods[2].Address(f), "CLIENT": c.Client.Address(f)} {
				replace = append(replace, place+n, address.String())
			}
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(strings.NewReplacer(replace...).Replace(config)), 0o600); err != nil {
			t.Fatal(err)
		}
		c.applyText(c.mustRun(0, exec.Command(binary, "import", path)))
		for _, f := range model.Families {
			to := netip.AddrPortFrom(vip[f], servicePort)
			seen := make(map[string]bool)
			for range 6 {
				seen[ask(t, c.Client, "tcp", to).Name] = true
			}
			if len(seen) != 2 || !seen[c.Pods[0].Name] || !seen[c.Pods[1].Name] {
				t.Errorf("%s: served by %v over %s", name, seen, f)
			}
			if name == "haproxy.cfg" {
				silent(t, []*netlab.Host{c.Pods[2]}, "tcp", to)
			}
		}
	}
}
