package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// versions are the packages that are built: the second one is the upgrade.
var versions = []string{"v0.0.1", "v0.0.2"}

func main() {
	if len(os.Args) > 1 {
		os.Exit(guest(os.Args[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := host(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func host(ctx context.Context) error {
	work, err := os.MkdirTemp("", "nftproxy-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	begin := time.Now()
	lap := func(step string) { fmt.Printf("%.0f s: %s\n", time.Since(begin).Seconds(), step) }
	root, err := debian(ctx)
	if err != nil {
		return fmt.Errorf("install Debian: %w", err)
	}
	lap("Debian is installed")
	for _, v := range versions {
		if err := build(ctx, v, filepath.Join(work, "dist")); err != nil {
			return fmt.Errorf("build the package: %w", err)
		}
	}
	lap("the packages are built")
	disk, err := newDisk(ctx, root, work)
	if err != nil {
		return fmt.Errorf("make a disk: %w", err)
	}
	lap("booting")
	if err := boot(ctx, disk); err != nil {
		return err
	}
	lap("all passed")
	return nil
}

// build builds the package of one version.
func build(ctx context.Context, version, dist string) error {
	arch, err := output(exec.CommandContext(ctx, "go", "env", "GOARCH"))
	if err != nil {
		return err
	}
	arch = strings.TrimSpace(arch)
	program := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version,
		"-o", filepath.Join(dist, "nftproxy-linux-"+arch), "./cmd/nftproxy")
	packages := exec.CommandContext(ctx, "scripts/packages", version, dist)
	program.Env = append(os.Environ(), "CGO_ENABLED=0")
	packages.Env = append(os.Environ(), "ARCHITECTURES="+arch)
	for _, cmd := range []*exec.Cmd{program, packages} {
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command and returns what it prints, or an error with it.
func output(cmd *exec.Cmd) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), complaint.String())
	}
	return out.String(), nil
}

// boot runs the machine until it turns itself off.
func boot(ctx context.Context, d *disk) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	report := d.path + ".report"
	// Software emulation, as everywhere. Without cx16: qemu 7.2 corrupts the flags of the
	// processor in cmpxchg16b, which panics kernel 6.12 in its allocator. Without svm, so
	// that no module of KVM is loaded.
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "qemu64,-cx16,-svm", "-m", "2G",
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "file:"+d.path+".console", "-serial", "file:"+report,
		"-drive", "file="+d.path+",format=raw,if=virtio", "-kernel", d.kernel, "-initrd", d.initrd,
		"-append", "root=/dev/vda rw console=ttyS0 panic=-1 quiet systemd.show_status=0")
	_, err := output(cmd)
	text, readErr := os.ReadFile(report)
	fmt.Print(string(text))
	if err := errors.Join(err, readErr, ctx.Err()); err != nil {
		return err
	}
	if !strings.Contains(string(text), "\n"+passed) {
		console, _ := os.ReadFile(d.path + ".console")
		return fmt.Errorf("the machine did not pass; its console:\n%s", console[max(0, len(console)-5000):])
	}
	return nil
}
