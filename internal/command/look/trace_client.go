package look

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
)

// client returns the address of the client that --from names, of the family of the
// destination if that is known; the zero value: any client.
func (o *traceOptions) client(c *cobra.Command, to netip.Addr) (netip.Addr, error) {
	if o.from == "" {
		return netip.Addr{}, nil
	}
	if a, err := netip.ParseAddr(o.from); err == nil {
		return o.ofFamily([]netip.Addr{a.Unmap()}, to)
	}
	namespace, name, found := strings.Cut(o.from, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return netip.Addr{}, fmt.Errorf("--from: %q is neither an address nor a pod: write for example 10.128.0.5 or shop/cart-5d8f7", o.from)
	}
	access := cluster.Access{Context: o.context, UserAgent: command.UserAgent(c)}
	access.Kubeconfig = o.kubeconfig
	pod, err := access.Pod(c.Context(), slog.New(slog.NewTextHandler(io.Discard, nil)), namespace, name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("--from: %w", err)
	}
	own, err := host.InterfaceAddresses()
	if err != nil {
		return netip.Addr{}, err
	}
	switch {
	case !slices.ContainsFunc(pod.Hosts, func(a netip.Addr) bool { return slices.Contains(own, a) }):
		return netip.Addr{}, fmt.Errorf("--from: pod %s runs on node %q: trace its connections there", o.from, pod.Node)
	case slices.ContainsFunc(pod.Addresses, func(a netip.Addr) bool { return slices.Contains(own, a) }):
		return netip.Addr{}, fmt.Errorf("--from: pod %s has the addresses of this node: use --from-node", o.from)
	}
	return o.ofFamily(pod.Addresses, to)
}

// ofFamily returns the first address of the family of the destination.
func (o *traceOptions) ofFamily(all []netip.Addr, to netip.Addr) (netip.Addr, error) {
	i := slices.IndexFunc(all, func(a netip.Addr) bool { return !to.IsValid() || model.FamilyOf(a) == model.FamilyOf(to) })
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("--from: %s has no %s address, and the destination is %s: give two of one family", o.from, model.FamilyOf(to), to)
	}
	return all[i], nil
}
