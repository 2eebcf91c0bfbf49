package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// network describes the network of the machine itself, which a run must leave as
// it is: links, addresses, routes, rules and settings.
func network() (string, error) {
	var all strings.Builder
	for _, command := range []string{"ip -o link", "ip -o address", "ip route show table all", "ip -6 route show table all", "ip rule",
		"nft --stateless list ruleset", "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.netfilter.nf_conntrack_max"} {
		words := strings.Fields(command)
		out, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w", command, err)
		}
		// Lifetimes of addresses pass.
		for line := range strings.Lines(string(out)) {
			line, _, _ = strings.Cut(line, " valid_lft")
			line, _, _ = strings.Cut(line, " expires")
			all.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	return all.String(), nil
}

// removal is how long the kernel may take to end the last processes and mounts of a cluster,
// beside other work.
const removal = 30 * time.Second

// remainsAfter is [remains] at last: as soon as there is nothing, or after a time.
func remainsAfter(dir string, limit time.Duration) error {
	return await.Poll(limit, 100*time.Millisecond, func() error { return remains(dir) })
}

// remains returns an error for each trace of a cluster, by the name of its
// directory: files, mounts, cgroups and processes.
func remains(dir string) error {
	var errs []error
	if _, err := os.Stat(dir); err == nil {
		errs = append(errs, fmt.Errorf("directory %s is still there", dir))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), dir) {
		errs = append(errs, fmt.Errorf("there are still mounts of %s", dir))
	}
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		groups, err := filepath.Glob(pattern + filepath.Base(dir))
		if err != nil {
			return err
		}
		for _, g := range groups {
			errs = append(errs, fmt.Errorf("cgroup %s is still there", g))
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, c := range commands {
		// A process that ended meanwhile is none that remains.
		if line, err := os.ReadFile(c); err == nil && strings.Contains(string(line), dir) {
			errs = append(errs, fmt.Errorf("process %s still runs: %s", filepath.Base(filepath.Dir(c)), strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return errors.Join(errs...)
}
