package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const unitFile = "../systemd/nftproxy.service"

// runTool runs a command at the top of the repository and returns what it prints.
func runTool(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = "../.."
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestUnit: systemd understands all of the unit, and finds it well confined.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "nftproxy.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/bin/nftproxy", "/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := runTool(t, nil, "systemd-analyze", "verify", "--man=no", unit); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	// The score does not count all of these, or hides the loss of one behind the others.
	for _, line := range []string{
		"UMask=0077", "StateDirectoryMode=0750", "RuntimeDirectoryMode=0700", "CapabilityBoundingSet=CAP_NET_ADMIN", "NoNewPrivileges=yes",
		"ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes", "ProtectClock=yes", "ProtectControlGroups=yes",
		"ProtectHostname=yes", "ProtectKernelLogs=yes", "ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ReadWritePaths=-/proc/sys/net",
		"LockPersonality=yes", "MemoryDenyWriteExecute=yes", "RestrictAddressFamilies=AF_NETLINK AF_UNIX AF_INET AF_INET6", "RestrictNamespaces=yes",
		"RestrictRealtime=yes", "RestrictSUIDSGID=yes", "RemoveIPC=yes", "SystemCallArchitectures=native", "SystemCallFilter=@system-service",
		"SystemCallFilter=~@privileged",
	} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	// 2.3 of 10, where 10 is no confinement.
	runTool(t, nil, "systemd-analyze", "security", "--offline=yes", "--threshold=23", "--no-pager", unit)
}

// TestPackages builds the packages twice, compares them, and checks their content
// (12.83). test/packages installs them.
func TestPackages(t *testing.T) {
	first, second := buildPackages(t), buildPackages(t)
	for name, path := range first {
		a, errA := os.ReadFile(path)
		b, errB := os.ReadFile(second[name])
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("two builds of %s differ, %v, %v", name, errA, errB)
		}
	}
	deb := first[".deb"]
	runTool(t, nil, "lintian", "--fail-on", "error,warning", "--allow-root", deb)
	both := []string{
		"/usr/bin/nftproxy", "/usr/lib/systemd/system/nftproxy.service", "/etc/default/nftproxy", "/etc/nftproxy/conf.d/README",
		"/usr/share/man/man1/nftproxy-run.1.gz", "/usr/share/man/man5/nftproxy-balance.5.gz",
		"/usr/share/bash-completion/completions/nftproxy",
		"/usr/share/fish/vendor_completions.d/nftproxy.fish", "/usr/share/doc/nftproxy/examples/web.yaml",
	}
	for _, c := range []struct {
		kind, list string
		own        []string
	}{
		{".deb", runTool(t, nil, "dpkg-deb", "--contents", deb), []string{"/usr/share/doc/nftproxy/copyright", "/usr/share/zsh/vendor-completions/_nftproxy"}},
		{".rpm", runTool(t, nil, "rpm", "-qlp", first[".rpm"]), []string{"/usr/share/licenses/nftproxy/LICENSE", "/usr/share/zsh/site-functions/_nftproxy"}},
	} {
		for _, file := range slices.Concat(both, c.own) {
			if !strings.Contains(c.list, file+"\n") {
				t.Errorf("%s has no %s:\n%s", c.kind, file, c.list)
			}
		}
	}
	// A user's changes of these files outlast an upgrade.
	const kept = "/etc/default/nftproxy\n/etc/nftproxy/conf.d/README\n"
	if got := runTool(t, nil, "dpkg-deb", "--info", deb, "conffiles"); got != kept {
		t.Errorf(".deb has the configuration files\n%s", got)
	}
	if got := runTool(t, nil, "rpm", "-qp", "--configfiles", first[".rpm"]); got != kept {
		t.Errorf(".rpm has the configuration files\n%s", got)
	}
	for script, want := range map[string]string{"postinst": "deb-systemd-invoke", "prerm": "nftproxy cleanup", "postrm": "rm -rf /var/lib/nftproxy"} {
		if got := runTool(t, nil, "dpkg-deb", "--info", deb, script); !strings.Contains(got, want) {
			t.Errorf("(12.83) no %q in %s:\n%s", want, script, got)
		}
	}
	scripts := runTool(t, nil, "rpm", "-qp", "--scripts", first[".rpm"])
	for _, want := range []string{"systemctl --no-reload preset nftproxy.service", "nftproxy cleanup", "systemctl try-restart nftproxy.service"} {
		if !strings.Contains(scripts, want) {
			t.Errorf(".rpm has no %q in its scripts:\n%s", want, scripts)
		}
	}
}

// buildPackages returns the packages by the ends of their names.
func buildPackages(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	runTool(t, nil, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "nftproxy-linux-"+runtime.GOARCH), "./cmd/nftproxy")
	runTool(t, []string{"ARCHITECTURES=" + runtime.GOARCH, "SOURCE_DATE_EPOCH=1700000000"}, "scripts/packages", "v1.2.3-4-gabcdef", dir)
	out := make(map[string]string)
	for _, kind := range []string{".deb", ".rpm"} {
		found, err := filepath.Glob(filepath.Join(dir, "*"+kind))
		if err != nil || len(found) != 1 {
			t.Fatalf("%d packages %s, %v", len(found), kind, err)
		}
		if !strings.Contains(found[0], "1.2.3+4.gabcdef-1") {
			t.Errorf("%s has another version", found[0])
		}
		out[kind] = found[0]
	}
	return out
}
