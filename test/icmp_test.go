package test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// pings lets clients ping at the same time, and checks what they get.
func pings(t *testing.T, from []*netlab.Host, to netip.Addr, want string, is func(error) bool) {
	t.Helper()
	wait := patience
	if is(os.ErrDeadlineExceeded) {
		wait = silence
	}
	parallel(from, []netip.AddrPort{netip.AddrPortFrom(to, 0)}, func(from *netlab.Host, _ netip.AddrPort) {
		if err := from.Ping(to, wait); !is(err) {
			t.Errorf("from %s: got %v, want %s", from.Name, err, want)
		}
	})
}

func isReply(err error) bool { return err == nil }

func isUnreachable(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func isSilence(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// 15.9: ICMPv6 and ICMP behave alike. The answers to pings of service
// addresses. The client outside has all of these addresses, and answers pings
// that get through.
func TestPing(t *testing.T) {
	c := newWideCluster(t, 2, 1)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1], SourceRanges: otherRanges}
	empty := service{Name: "empty", N: 2}
	free := service{N: 99}
	c.apply(web, empty)
	inside := append(c.Remote, c.Node, c.Pods[1])
	for _, family := range model.Families {
		reachable := []netip.Addr{web.externalIP(family).Addr(), web.loadBalancerIP(family).Addr(), otherAddress[family]}
		unreachable := []netip.Addr{web.clusterIP(family).Addr(), empty.clusterIP(family).Addr()}
		for _, a := range append(append(unreachable, free.clusterIP(family).Addr()), reachable...) {
			if err := c.Client.AddAddress(a); err != nil {
				t.Fatal(err)
			}
		}
		t.Run("4.23 ClusterIP "+family.String(), func(t *testing.T) {
			for _, a := range unreachable {
				pings(t, inside, a, "port unreachable", isUnreachable)
			}
		})
		t.Run("4.24 unallocated address "+family.String(), func(t *testing.T) {
			pings(t, inside, free.clusterIP(family).Addr(), "a time-out", isSilence)
		})
		t.Run("4.25 other addresses "+family.String(), func(t *testing.T) {
			for _, a := range reachable {
				pings(t, inside, a, "a reply", isReply)
			}
			pings(t, append(inside, c.Client), c.Node.Address(family), "a reply", isReply)
		})
	}
}
