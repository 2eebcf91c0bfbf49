package netlab

import (
	"crypto/ecdh"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	genetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addTunnel adds a tunnel of the kind that it is named as to the namespace of the calling thread, with a number that
// both ends share.
func addTunnel(attrs netlink.LinkAttrs, id uint32, own, other netip.Addr) error {
	const vxlanPort, genevePort = 4789, 6081
	var link netlink.Link
	switch attrs.Name {
	case "vxlan", "vxlan-ipv6":
		link = &netlink.Vxlan{LinkAttrs: attrs, VxlanId: int(id), SrcAddr: own.AsSlice(), Group: other.AsSlice(), Port: vxlanPort}
	case "geneve":
		link = &netlink.Geneve{LinkAttrs: attrs, ID: id, Remote: other.AsSlice(), Dport: genevePort}
	case "ipip": // of IPv4 and IPv6 in IPv4, which the kernel calls sit
		link = &netlink.Sittun{LinkAttrs: attrs, Local: own.AsSlice(), Remote: other.AsSlice()}
	case "wireguard":
		link = &netlink.Wireguard{LinkAttrs: attrs}
	default:
		return fmt.Errorf("no kind %q of tunnels", attrs.Name)
	}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add link %s: %w", attrs.Name, err)
	}
	if attrs.Name == "wireguard" {
		return configureWireGuard(attrs.Name, own, other)
	}
	return nil
}

// keyOf returns a key that both ends know: there is nothing to hide.
func keyOf(a netip.Addr) (*ecdh.PrivateKey, error) {
	seed := make([]byte, 32)
	copy(seed, a.AsSlice())
	return ecdh.X25519().NewPrivateKey(seed)
}

// configureWireGuard lets a device exchange all packets with the other end.
func configureWireGuard(device string, own, other netip.Addr) error {
	private, err := keyOf(own)
	if err != nil {
		return err
	}
	peer, err := keyOf(other)
	if err != nil {
		return err
	}
	const port = 51820
	endpoint := binary.NativeEndian.AppendUint16(nil, unix.AF_INET) // struct sockaddr_in
	endpoint = binary.BigEndian.AppendUint16(endpoint, port)
	endpoint = append(append(endpoint, other.AsSlice()...), make([]byte, 8)...)
	e := genetlink.NewAttributeEncoder()
	e.String(unix.WGDEVICE_A_IFNAME, device)
	e.Bytes(unix.WGDEVICE_A_PRIVATE_KEY, private.Bytes())
	e.Uint16(unix.WGDEVICE_A_LISTEN_PORT, port)
	e.Nested(unix.WGDEVICE_A_PEERS, func(peers *genetlink.AttributeEncoder) error {
		peers.Nested(0, func(p *genetlink.AttributeEncoder) error {
			p.Bytes(unix.WGPEER_A_PUBLIC_KEY, peer.PublicKey().Bytes())
			p.Bytes(unix.WGPEER_A_ENDPOINT, endpoint)
			p.Nested(unix.WGPEER_A_ALLOWEDIPS, allowEverything)
			return nil
		})
		return nil
	})
	attributes, err := e.Encode()
	if err != nil {
		return err
	}
	if err := requestWireGuard(attributes); err != nil {
		return fmt.Errorf("configure link %s: %w", device, err)
	}
	return nil
}

func allowEverything(list *genetlink.AttributeEncoder) error {
	for i, everything := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		family := uint16(unix.AF_INET)
		if everything.Is6() {
			family = unix.AF_INET6
		}
		list.Nested(uint16(i), func(e *genetlink.AttributeEncoder) error {
			e.Uint16(unix.WGALLOWEDIP_A_FAMILY, family)
			e.Bytes(unix.WGALLOWEDIP_A_IPADDR, everything.AsSlice())
			e.Uint8(unix.WGALLOWEDIP_A_CIDR_MASK, 0)
			return nil
		})
	}
	return nil
}

// requestWireGuard sends attributes of a device to the kernel.
func requestWireGuard(attributes []byte) (err error) {
	family, err := netlink.GenlFamilyGet("wireguard")
	if err != nil {
		return err
	}
	c, err := genetlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	_, err = c.Execute(genetlink.Message{
		Header: genetlink.Header{Type: genetlink.HeaderType(family.ID), Flags: genetlink.Request | genetlink.Acknowledge},
		Data:   append([]byte{unix.WG_CMD_SET_DEVICE, unix.WG_GENL_VERSION, 0, 0}, attributes...),
	})
	return err
}
