package xtables

import (
	"encoding/binary"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzTable: any table in the kernel's format has a policy of FORWARD, or an error; and names of chains that fit into it.
func FuzzTable(f *testing.F) {
	info, entries := make([]byte, infoLength), make([]byte, 600)
	copy(entries[300:], "ERROR")
	copy(entries[330:], "KUBE-SERVICES")
	binary.NativeEndian.PutUint16(entries[88:], 112)
	f.Add(info, entries, false)
	f.Add(info, entries[:200], true)
	far := make([]byte, infoLength)
	for i := range far {
		far[i] = 0xff
	}
	f.Add(far, entries, true)
	f.Fuzz(func(t *testing.T, info, entries []byte, six bool) {
		if len(info) != infoLength {
			return // which read makes
		}
		table := &Table{family: IPv4, info: info, entries: entries}
		if six {
			table.family = IPv6
		}
		forward, err := table.Forward()
		if err != nil && (forward != Forward{}) {
			t.Errorf("%+v, and %v", forward, err)
		}
		var names []string
		hostile.CheckMemory(t, len(entries), 64, func() { names = table.Chains() })
		const each = 60 // bytes
		if len(names)*each > len(entries) {
			t.Errorf("%d chains in %d bytes", len(names), len(entries))
		}
		for _, n := range names {
			if len(n) > 30 {
				t.Errorf("the name %q is longer than its field", n)
			}
		}
	})
}
