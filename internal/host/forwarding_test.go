package host_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
)

// settings makes a directory with these settings below proc/sys/net.
func settings(t *testing.T, all map[string]string) host.System {
	t.Helper()
	root := t.TempDir()
	for name, value := range all {
		path := filepath.Join(root, "proc/sys/net", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(value+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return host.System(root)
}

// 12.76, 12.77: what is off is set, what is on stays, and router advertisements are
// accepted as before.
func TestSetForwarding(t *testing.T) {
	for _, c := range []struct {
		name   string
		family model.Family
		before map[string]string
		want   []string
	}{
		{"IPv4", model.IPv4, map[string]string{"ipv4/ip_forward": "0"}, []string{"net.ipv4.ip_forward: 0 → 1"}},
		{"IPv4 is on", model.IPv4, map[string]string{"ipv4/ip_forward": "1"}, nil},
		{"IPv6 is on", model.IPv6, map[string]string{"ipv6/conf/all/forwarding": "1", "ipv6/conf/eth0/accept_ra": "1", "ipv6/conf/eth0/forwarding": "0"}, nil},
		{"IPv6 is on, for interfaces only", model.IPv6, map[string]string{"ipv6/conf/all/forwarding": "2"}, nil},
		{"IPv6", model.IPv6, map[string]string{
			"ipv6/conf/all/forwarding": "0", "ipv6/conf/all/accept_ra": "1", "ipv6/conf/default/accept_ra": "1", "ipv6/conf/default/forwarding": "0",
			"ipv6/conf/lo/accept_ra": "1", "ipv6/conf/lo/forwarding": "0",
			"ipv6/conf/eth0/accept_ra": "1", "ipv6/conf/eth0/forwarding": "0",
			"ipv6/conf/eth1/accept_ra": "0", "ipv6/conf/eth1/forwarding": "0", // refuses
			"ipv6/conf/eth2/accept_ra": "2", "ipv6/conf/eth2/forwarding": "0", // accepts already
			"ipv6/conf/eth3/accept_ra": "1", "ipv6/conf/eth3/forwarding": "1", // ignores already
		}, []string{"net.ipv6.conf.eth0.accept_ra: 1 → 2", "net.ipv6.conf.all.forwarding: 0 → 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := settings(t, c.before)
			var log bytes.Buffer
			changed, err := s.SetForwarding(c.family, nil, slog.New(slog.NewTextHandler(&log, nil)))
			var got []string
			for _, c := range changed {
				got = append(got, c.String())
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v, %v, want %v", got, err, c.want)
			}
			if strings.Count(log.String(), "kernel setting changed") != len(c.want) {
				t.Errorf("log: %s", log.String())
			}
			if again, err := s.SetForwarding(c.family, nil, slog.New(slog.DiscardHandler)); len(again) > 0 || err != nil {
				t.Errorf("again: %v, %v", again, err)
			}
		})
	}
	if _, err := settings(t, nil).SetForwarding(model.IPv4, nil, slog.New(slog.DiscardHandler)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
