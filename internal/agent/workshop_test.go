package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// workshop is an agent on the real kernel that syncs when the test says so.
type workshop struct {
	*Agent
	ns     *netlab.Namespace
	kernel *kernel.Conn
	log    *bytes.Buffer
	syncs  []*Sync
}

// newWorkshop opens the kernel of a namespace.
func newWorkshop(t testing.TB, ns *netlab.Namespace) *workshop {
	t.Helper()
	w := &workshop{ns: ns, log: new(bytes.Buffer)}
	if err := ns.Do(func() (err error) { w.kernel, err = kernel.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.kernel.Close() })
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.Agent = New(Config{
		Applier:   apply.New(w.kernel, log),
		Observers: []func(*Sync){func(s *Sync) { w.syncs = append(w.syncs, s) }},
		Log:       log,
		Node:      model.Config{NodeName: "node-1"},
	})
	return w
}

func named(i int) model.ServiceName {
	return model.ServiceName{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}
}

var nodes = []*model.Node{{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}
