package support

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/bundle"
	"github.com/nftproxy/nftproxy/internal/cli/common"
)

// factFiles are the files that say what kernel and machine this is.
var factFiles = []string{
	"/proc/version", "/etc/os-release", "/proc/loadavg", "/proc/meminfo",
	"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/all/forwarding", "/proc/sys/net/ipv6/conf/all/forwarding",
	"/proc/sys/net/ipv4/conf/all/rp_filter", "/proc/sys/net/ipv4/ip_local_port_range",
	"/proc/sys/net/netfilter/nf_conntrack_*", "/proc/sys/net/bridge/bridge-nf-call-*",
}

// modules are the beginnings of the names of kernel modules that matter.
var modules = []string{"nf_", "nft_", "nfnetlink", "xt_", "ip_", "ip6", "ipt_", "x_tables", "br_netfilter", "bridge", "vxlan", "wireguard"}

const (
	maxFact = 64 << 10 // bytes
	logTime = 20 * time.Second
)

// addFacts adds facts of the kernel, and the log of the service.
func addFacts(ctx context.Context, a *bundle.Archive) {
	var text strings.Builder
	for _, pattern := range factFiles {
		paths, _ := filepath.Glob(pattern) // the patterns are well-formed
		for _, path := range paths {
			if content, err := os.ReadFile(path); err == nil {
				fmt.Fprintf(&text, "# %s\n%s\n", path, content[:min(len(content), maxFact)])
			}
		}
	}
	if content, err := os.ReadFile("/proc/modules"); err == nil {
		text.WriteString("# /proc/modules\n")
		for line := range strings.Lines(string(content)) {
			for _, prefix := range modules {
				if strings.HasPrefix(line, prefix) {
					text.WriteString(line)
					break
				}
			}
		}
	}
	a.Add(machineGroup, "kernel.txt", []byte(text.String()), bundle.Head)
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	log := exec.CommandContext(ctx, "journalctl", "--unit", "nftproxy", "--no-pager", "--output", "short-iso", "--lines", common.LogLines)
	var failure bytes.Buffer
	log.Stderr = &failure
	content, err := log.Output()
	if err != nil {
		a.Lack(machineGroup, "log.txt", fmt.Errorf("journalctl: %w %s", err, strings.TrimSpace(failure.String())))
		return
	}
	a.Add(machineGroup, "log.txt", content, bundle.Tail)
}
