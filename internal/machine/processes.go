package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/nflog"
)

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

// readLogGroups looks for programs that read groups of nflog.
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
