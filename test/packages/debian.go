package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	codename = "trixie"
	keyring  = "/usr/share/keyrings/debian-archive-keyring.gpg"
	maxAge   = 7 * 24 * time.Hour // of the installation
	// layout names what debian installs. Change it together with the packages below.
	layout = "2"
	// bare is what every Debian machine has, sudo and curl.
	bare = "systemd-sysv,linux-image-cloud-amd64,initramfs-tools,udev,dbus,iproute2,nftables,kmod,procps,sudo,curl"
)

// debian installs Debian into an archive, or finds it there.
func debian(ctx context.Context) (archive string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	archive = filepath.Join(cache, "nftproxy-packages", codename+"-"+layout+".tar")
	if i, err := os.Stat(archive); err == nil && time.Since(i.ModTime()) < maxAge {
		return archive, nil
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return "", err
	}
	mirror, err := mirror(ctx)
	if err != nil {
		return "", err
	}
	unfinished := archive + ".new"
	defer os.Remove(unfinished)
	_, err = output(exec.CommandContext(ctx, "mmdebstrap", "--format=tar", "--variant=minbase", "--include="+bare,
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		codename, unfinished, fmt.Sprintf("deb [signed-by=%s] %s %s main", keyring, mirror, codename)))
	if err != nil {
		return "", err
	}
	return archive, os.Rename(unfinished, archive)
}

// mirror returns where this machine has its Debian from.
func mirror(ctx context.Context) (string, error) {
	targets, err := output(exec.CommandContext(ctx, "apt-get", "indextargets",
		"--format", "$(ORIGIN) $(REPO_URI) $(CODENAME)", "Created-By: Packages", "Component: main"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(targets) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "Debian" && !strings.Contains(words[2], "-") {
			return words[1], nil
		}
	}
	return "", errors.New(`apt knows no source of Debian packages: run this on Debian, after "apt-get update"`)
}

// disk is a disk with Debian, and the files to boot it.
type disk struct{ path, kernel, initrd string }

// documented is the file in the machine with the commands of docs/install.md.
const documented = "/root/commands"

// firstBlock returns the first block of code of a page.
func firstBlock(page string) (string, error) {
	_, rest, _ := strings.Cut(page, "\n```\n")
	block, _, found := strings.Cut(rest, "\n```\n")
	if !found {
		return "", errors.New("docs/install.md has no block of commands")
	}
	return block, nil
}

const guestUnit = `[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/root/packages test
ExecStopPost=/usr/bin/systemctl poweroff --force
StandardOutput=file:/dev/ttyS1
StandardError=inherit
[Install]
WantedBy=multi-user.target
`

// newDisk makes a disk with Debian, the packages, and this program as a unit that runs
// after the boot.
func newDisk(ctx context.Context, archive, work string) (*disk, error) {
	root := filepath.Join(work, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return nil, err
	}
	if _, err := output(exec.CommandContext(ctx, "tar", "-C", root, "-xf", archive)); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(work, "dist/*.deb"))
	if err != nil || len(debs) != len(versions) {
		return nil, fmt.Errorf("%d packages, %v", len(debs), err)
	}
	units := filepath.Join(root, "etc/systemd/system")
	document, err := os.ReadFile("docs/install.md")
	if err != nil {
		return nil, err
	}
	commands, err := firstBlock(string(document))
	if err != nil {
		return nil, err
	}
	_, copyErr := output(exec.CommandContext(ctx, "cp", append([]string{"-t", filepath.Join(root, "root"), self}, debs...)...))
	if err := errors.Join(copyErr, os.WriteFile(filepath.Join(root, documented), []byte(commands), 0o644),
		os.Rename(filepath.Join(root, "root", filepath.Base(self)), filepath.Join(root, "root/packages")),
		os.WriteFile(filepath.Join(units, "packages.service"), []byte(guestUnit), 0o644),
		os.Symlink("../packages.service", filepath.Join(units, "multi-user.target.wants/packages.service"))); err != nil {
		return nil, err
	}
	d := &disk{path: filepath.Join(work, "disk")}
	for pattern, to := range map[string]*string{"boot/vmlinuz-*": &d.kernel, "boot/initrd.img-*": &d.initrd} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) != 1 {
			return nil, fmt.Errorf("%s: %d files, %v", pattern, len(found), err)
		}
		*to = found[0]
	}
	_, err = output(exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-d", root, d.path, "2G"))
	return d, err
}
