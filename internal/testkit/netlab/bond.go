package netlab

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// addBond adds a bond. With active-backup, one device works at a time, the first one while it has a carrier: the other
// end uses the same. With LACP, both work, each for a part of the connections.
func addBond(name string, mode netlink.BondMode, devices []string) error {
	first, err := findLink(devices[0])
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	bond := netlink.NewLinkBond(attrs)
	bond.Mode, bond.Miimon = mode, 10 // milliseconds
	if mode == netlink.BOND_MODE_802_3AD {
		bond.LacpRate, bond.XmitHashPolicy = netlink.BOND_LACP_RATE_FAST, netlink.BOND_XMIT_HASH_POLICY_LAYER3_4
	} else {
		bond.Primary = first.Attrs().Index
	}
	if err := netlink.LinkAdd(bond); err != nil {
		return fmt.Errorf("add link %s: %w", name, err)
	}
	for _, d := range devices {
		device, err := findLink(d)
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetDown(device), netlink.LinkSetMaster(device, bond)); err != nil {
			return fmt.Errorf("add link %s to %s: %w", d, name, err)
		}
	}
	return nil
}

// awaitAggregate waits until devices of a bond distribute packets in one aggregate with the other end.
func awaitAggregate(devices []string) error {
	const distributing = 1 << 5         // of the states of a port in IEEE 802.1AX
	const negotiationTime = time.Minute // the bond itself waits for seconds
	err := until(negotiationTime, func() (bool, error) {
		aggregates := make(map[uint16]bool)
		for _, d := range devices {
			link, err := findLink(d)
			if err != nil {
				return false, err
			}
			port, ok := link.Attrs().Slave.(*netlink.BondSlave)
			if !ok || port.AdActorOperPortState&distributing == 0 || port.AdPartnerOperPortState&distributing == 0 {
				return false, nil
			}
			aggregates[port.AggregatorId] = true
		}
		return len(aggregates) == 1, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %v to be one aggregate: %w", devices, err)
	}
	return nil
}
