package takeover

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzServers: of any list of IPVS, each line is one virtual server at most, with an address and a known protocol.
func FuzzServers(f *testing.F) {
	for _, list := range []string{
		"IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\nTCP  0A60000A:0050 rr\n  -> 0A800001:1F90 Masq 1 0 0\nUDP  [fd00:0010:0096:0000:0000:0000:0000:000a]:0035 rr\nFWM  00000001 rr\n",
		"Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\nTCP C0000207 9C40 0A60000A 0050 0A800001 1F90 ESTABLISHED     899\nTCP C0000207 0000 0A60000A 0050 0A800001 1F90 NONE     899\n",
		"TCP :\nTCP [fd00::1]:100000 rr\nTCP [::ffff:192.0.2.1]:0050\nTCP 0A60:0050\nTCP 0A60000A:10050\n",
	} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		var servers, dialled []virtualServer
		hostile.CheckMemory(t, len(list), 1024, func() { servers, dialled = parseServers(list), parseConnections(list) })
		lines := strings.Count(list, "\n") + 1
		if len(servers) > lines || len(dialled) > lines {
			t.Errorf("%d and %d servers in %d lines", len(servers), len(dialled), lines)
		}
		for _, v := range append(servers, dialled...) {
			if !v.to.Addr().IsValid() || v.protocol != model.TCP && v.protocol != model.UDP && v.protocol != model.SCTP {
				t.Errorf("%+v", v)
			}
		}
	})
}
