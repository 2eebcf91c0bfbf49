package debian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// install unpacks the packages that were fetched, and does the little of what
// their scripts do that the tests need.
func install(ctx context.Context, s System) error {
	// Packages of Debian 12 have files in both of each pair.
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(s.Root(), "usr", d), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+d, filepath.Join(s.Root(), d)); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(s.dir, "archives/*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if err := extract(ctx, p, s.Root()); err != nil {
			return err
		}
	}
	for _, d := range []string{"archives", "lists", "root/usr/share/doc", "root/usr/share/man", "root/usr/share/locale",
		"root/usr/lib/" + machines[s.Arch].libraries + "/gconv"} {
		if err := os.RemoveAll(filepath.Join(s.dir, d)); err != nil {
			return err
		}
	}
	for _, command := range []string{"sh", "sleep"} {
		if err := os.Symlink("busybox", filepath.Join(s.Root(), "bin", command)); err != nil {
			return err
		}
	}
	if err := writeAccounts(s.Root()); err != nil {
		return err
	}
	return installKernel(ctx, s)
}

// extract unpacks a package. "dpkg-deb --extract" would put directories where
// links to directories are.
func extract(ctx context.Context, file, root string) error {
	archive := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	files, err := archive.StdoutPipe()
	if err != nil {
		return err
	}
	if err := archive.Start(); err != nil {
		return err
	}
	tar := exec.CommandContext(ctx, "tar", "--extract", "--keep-directory-symlink", "--directory="+root)
	tar.Stdin = files
	_, err = output(tar)
	return errors.Join(err, archive.Wait())
}

// installKernel indexes the modules, and puts the kernel in its place.
func installKernel(ctx context.Context, s System) error {
	images, err := filepath.Glob(filepath.Join(s.Root(), "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("find the kernel: %d, %v", len(images), err)
	}
	_, version, _ := strings.Cut(filepath.Base(images[0]), "-")
	modules := filepath.Join(s.Root(), "usr/lib/modules", version, "kernel")
	if err := keepOnly(modules, "net", "lib", "crypto", "arch", "drivers/net"); err != nil {
		return err
	}
	if err := depmod(ctx, s, version); err != nil {
		return err
	}
	// The time of the package is not that of the installation.
	now := time.Now()
	return errors.Join(os.Chtimes(images[0], now, now), os.Rename(images[0], filepath.Join(s.dir, "vmlinuz")),
		os.RemoveAll(filepath.Join(s.Root(), "boot")))
}

// depmod runs depmod of the release, in an emulator if this machine has another architecture.
func depmod(ctx context.Context, s System, version string) error {
	cmd := exec.CommandContext(ctx, "/sbin/depmod", version)
	if s.Arch != runtime.GOARCH {
		emulator, err := exec.LookPath(machines[s.Arch].emulator)
		if err != nil {
			return err
		}
		const inside = "/emulator"
		if _, err := output(exec.CommandContext(ctx, "cp", emulator, filepath.Join(s.Root(), inside))); err != nil {
			return err
		}
		defer os.Remove(filepath.Join(s.Root(), inside))
		// kmod is what its first argument names.
		cmd = exec.CommandContext(ctx, inside, "-0", "depmod", "/bin/kmod", version)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: s.Root()}
	cmd.Dir = "/"
	_, err := output(cmd)
	return err
}

// keepOnly removes the files that are in none of some directories.
func keepOnly(dir string, kept ...string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		if slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(name, k+"/") }) {
			return nil
		}
		return os.Remove(path)
	})
}

func writeAccounts(root string) error {
	return errors.Join(
		os.MkdirAll(filepath.Join(root, "etc"), 0o755),
		os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("127.0.0.1 localhost\n::1 localhost\n"), 0o644),
	)
}
