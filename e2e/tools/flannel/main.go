// Command flannel is flanneld without the backends that need a C compiler or the client
// of a cloud. It assembles flannel's packages in the order in which flanneld does.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/etcd"
	"github.com/flannel-io/flannel/pkg/trafficmngr"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

// Flags of flanneld, and the subnets that it reads from its subnet file.
var (
	endpoint   = flag.String("etcd-endpoints", "", "URL of etcd")
	iface      = flag.String("iface", "", "interface between the nodes")
	subnet4    = flag.String("subnet", "", "IPv4 range of the node's pods")
	subnet6    = flag.String("subnet6", "", "IPv6 range of the node's pods")
	subnetFile = flag.String("subnet-file", "", "file with the settings of the CNI plugin")
)

const (
	leaseMargin = 60 // minutes before the end of a lease
	resync      = 5  // seconds between checks of iptables
)

func main() {
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	_, net4, err := net.ParseCIDR(*subnet4)
	if err != nil {
		return err
	}
	_, net6, err := net.ParseCIDR(*subnet6)
	if err != nil {
		return err
	}
	previous4, previous6 := ip.FromIPNet(net4), ip.FromIP6Net(net6)
	manager, err := etcd.NewLocalManager(ctx, &etcd.EtcdConfig{Endpoints: []string{*endpoint}, Prefix: "/coreos.com/network"},
		previous4, previous6, leaseMargin)
	if err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	network, err := register(ctx, manager, config, &running)
	if err != nil {
		return err
	}
	if err := program(ctx, config, previous4, previous6, network); err != nil {
		return err
	}
	lease := network.Lease()
	if err := manager.HandleSubnetFile(*subnetFile, config, true, lease.Subnet, lease.IPv6Subnet, network.MTU()); err != nil {
		return fmt.Errorf("write subnet file: %w", err)
	}
	running.Go(func() { network.Run(ctx) })
	return manager.CompleteLease(ctx, lease, &running)
}

// register gets the node's subnets and sets its backend up.
func register(ctx context.Context, manager subnet.Manager, config *subnet.Config, running *sync.WaitGroup) (backend.Network, error) {
	stack, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return nil, err
	}
	external, err := ipmatch.LookupExtIface(*iface, "", "", stack, ipmatch.PublicIPOpts{})
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", *iface, err)
	}
	b, err := backend.NewManager(ctx, manager, external).GetBackend(config.BackendType)
	if err != nil {
		return nil, err
	}
	return b.RegisterNetwork(ctx, running, config)
}

// program writes the node's rules, after those of the other mode are gone.
func program(ctx context.Context, config *subnet.Config, previous4 ip.IP4Net, previous6 ip.IP6Net, network backend.Network) error {
	var traffic, other trafficmngr.TrafficManager = &iptables.IPTablesManager{}, &nftables.NFTablesManager{}
	if config.EnableNFTables {
		traffic, other = other, traffic
	}
	if err := other.CleanUp(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	if err := traffic.Init(ctx); err != nil {
		return fmt.Errorf("prepare rules: %w", err)
	}
	if err := traffic.SetupAndEnsureMasqRules(ctx, config.Network, previous4, config.Network, config.IPv6Network, previous6, config.IPv6Network,
		network.Lease(), resync, false); err != nil {
		return fmt.Errorf("add masquerade rules: %w", err)
	}
	traffic.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	return nil
}
