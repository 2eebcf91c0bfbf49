package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/takeover"
)

// writer is a program that writes rules, by the names that it gives them.
type writer struct {
	name     string
	tables   []string
	prefixes []string // of chains
	words    []string // in the text of its rules, in tables of others
}

const hostPorts = "host ports of CNI plugins"

// writers are programs whose rules may be beside ours.
var writers = []writer{
	{name: "nftproxy", tables: []string{nft.TableName, nft.RelayTable, fastpath.TableName}},
	{name: "Docker", tables: []string{"docker-bridges"}, prefixes: []string{"DOCKER"}, words: []string{"docker0"}},
	{name: "Podman", tables: []string{"netavark"}, prefixes: []string{"NETAVARK"}},
	{name: "firewalld", tables: []string{"firewalld"}},
	{name: "ufw", prefixes: []string{"ufw"}},
	{name: "Calico", tables: []string{"calico"}, prefixes: []string{"cali-"}, words: []string{"cali:"}},
	{name: "flannel", tables: []string{"flannel-ipv4", "flannel-ipv6"}, prefixes: []string{"FLANNEL"}, words: []string{"flanneld"}},
	{name: "Cilium", prefixes: []string{"CILIUM_", "OLD_CILIUM_"}, words: []string{"cilium:"}},
	{name: "kube-router", tables: []string{"kube-router"}, prefixes: []string{"KUBE-ROUTER", "KUBE-POD-FW", "KUBE-NWPLCY", "KUBE-SVC-FW"}, words: []string{"kube-router"}},
	{name: "kube-proxy", tables: []string{takeover.KubeProxyTable}},
	{name: "the kubelet", prefixes: []string{"KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"}},
	{name: "kindnet", tables: []string{"kindnet", "kindnetd", "kindnet-network-policies", "kube-network-policies"}},
	{name: "Istio", prefixes: []string{"ISTIO", "istio"}, words: []string{"istio"}},
	{name: "Antrea", tables: []string{"antrea"}, prefixes: []string{"ANTREA-"}, words: []string{"Antrea:"}},
	{name: "Weave", prefixes: []string{"WEAVE"}},
	{name: hostPorts, tables: []string{"cni_hostport"}, prefixes: []string{"CNI-HOSTPORT", "CNI-DN-"}},
	{name: nodeLocalDNS, words: []string{"NodeLocal DNS"}},
	{name: "Tailscale", tables: []string{"tailscale"}, prefixes: []string{"ts-forward", "ts-postrouting", "ts-input"}},
	{name: "libvirt", tables: []string{"libvirt_network"}, prefixes: []string{"LIBVIRT_"}},
	{name: "fail2ban", tables: []string{"f2b-table"}, prefixes: []string{"f2b-"}},
	{name: "CrowdSec", tables: []string{"crowdsec", "crowdsec6"}, prefixes: []string{"CROWDSEC"}},
	{name: "sshguard", tables: []string{"sshguard"}, prefixes: []string{"sshguard"}},
	{name: "OVN-Kubernetes", tables: []string{"ovn-kubernetes"}, prefixes: []string{"OVN-KUBE"}},
}

// Program returns the name of the program that a chain belongs to by its name, or an empty
// string.
func Program(table, chain string) string {
	for _, w := range writers {
		if slices.Contains(w.tables, table) || hasPrefix(chain, w.prefixes) {
			return w.name
		}
	}
	if takeover.IsKubeProxy(chain) {
		return "kube-proxy"
	}
	return ""
}

// ProgramOfRule returns the name of the program that a rule belongs to, in a chain that
// several programs write to, such as FORWARD: by the chain that it leads to, and by its text.
func ProgramOfRule(to, text string) string {
	if to != "" {
		if name := Program("", to); name != "" {
			return name
		}
	}
	for _, w := range writers {
		if slices.ContainsFunc(w.words, func(word string) bool { return strings.Contains(text, word) }) {
			return w.name
		}
	}
	return ""
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// programs are the names of processes that matter.
var programs = map[string]bool{"kube-proxy": true, "firewalld": true, "dockerd": true}

// readProcesses looks for programs by name, in all network namespaces.
func (f *Facts) readProcesses() error {
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("/proc shows no processes")
	}
	for _, file := range files {
		name, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		switch p := (host.Process{PID: pid, Name: strings.TrimSpace(string(name))}); {
		case pid == 2 && p.Name == "kthreadd": // not in other PID namespaces
			f.AllProcesses = true
		case programs[p.Name] && pid != os.Getpid() && isHere(pid) && !isNFTproxy(pid):
			f.Processes = append(f.Processes, p)
		}
	}
	return nil
}

func (f *Facts) readLogGroups() error {
	ports, err := nflog.Ports()
	if err != nil {
		return err
	}
	for group, port := range ports {
		p := host.ProcessOf(port)
		if p.PID != 0 && isNFTproxy(p.PID) {
			continue
		}
		if f.LogReaders == nil {
			f.LogReaders = make(map[uint16]host.Process)
		}
		f.LogReaders[group] = p
	}
	return nil
}

// isHere reports whether a process is in this network namespace. If the kernel does
// not say so, it counts as being here, unless it has ended.
func isHere(pid int) bool {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	ours, ourErr := os.Readlink("/proc/thread-self/ns/net")
	return err != nil || ourErr != nil || theirs == ours
}

// isNFTproxy reports whether a process of any name runs nftproxy: its image has a link
// of the name kube-proxy.
func isNFTproxy(pid int) bool {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && filepath.Base(program) == "nftproxy"
}
