package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	maxAge  = 7 * 24 * time.Hour // of unpacked packages
)

// base is in every set of packages: a shell, and the loader of kernel modules with
// what it unpacks those of Debian 13 by.
var base = []string{"busybox-static", "kmod", "liblzma5"}

// layout names what unpack makes. Change it together with unpack, so that older
// caches are not used.
const layout = "1"

// Release is a Debian release for an architecture, and the kernel series that it has.
type Release struct{ Kernel, Codename, Arch string }

// Releases returns those that can be unpacked for an architecture, the oldest first.
func Releases(arch string) []Release {
	return []Release{{"6.1", "bookworm", arch}, {"6.12", "trixie", arch}}
}

// Newest returns the newest one, for the architecture of this machine.
func Newest() Release {
	all := Releases(runtime.GOARCH)
	return all[len(all)-1]
}

// Set is packages that are unpacked together, besides a kernel and a shell. Its name
// is part of that of the cache: give other packages another name.
type Set struct {
	Name     string
	Packages []string
}

// Userland is what the tests of this repository run.
var Userland = Set{"-tests", []string{"nftables", "iptables", "util-linux", "conntrack"}}

// System is a Debian release, unpacked.
type System struct {
	Release
	dir string // with the file vmlinuz and the directory root
}

// Root is the directory of its files.
func (s System) Root() string { return filepath.Join(s.dir, "root") }

// ReleaseOf returns the release with a kernel, such as 6.12, for an architecture.
func ReleaseOf(kernel, arch string) (Release, error) {
	all := Releases(arch)
	i := slices.IndexFunc(all, func(r Release) bool { return r.Kernel == kernel })
	if i < 0 {
		return Release{}, fmt.Errorf("no kernel %q; there are %v", kernel, all)
	}
	return all[i], nil
}

// Libraries is the directory of its libraries, and the path of the loader that belongs to them.
func (s System) Libraries() (dir, loader string) {
	m := machines[s.Arch]
	dir = filepath.Join(s.Root(), "usr/lib", m.libraries)
	return dir, filepath.Join(dir, m.loader)
}

// Unpack unpacks packages of a release into the cache of the user, or finds them
// unpacked there.
func Unpack(ctx context.Context, r Release, set Set) (System, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return System{}, fmt.Errorf("find a place for Debian's packages: %w", err)
	}
	cache = filepath.Join(cache, "nftproxy-kernels")
	name := r.Codename + set.Name + "-" + layout
	if r.Arch != "amd64" {
		name += "-" + r.Arch
	}
	s := System{r, filepath.Join(cache, name)}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return s, err
	}
	// Another process may unpack the same: it would remove what this one has begun to read.
	lock, err := os.Create(s.dir + ".lock")
	if err != nil {
		return s, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return s, err
	}
	if i, err := os.Stat(filepath.Join(s.dir, "vmlinuz")); err == nil && time.Since(i.ModTime()) < maxAge {
		return s, nil
	}
	// What is there is always complete.
	unfinished, err := os.MkdirTemp(cache, r.Codename+"-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(unfinished)
	if err := fetch(ctx, r, set, unfinished); err != nil {
		return s, err
	}
	if err := install(ctx, System{r, unfinished}); err != nil {
		return s, err
	}
	return s, errors.Join(os.RemoveAll(s.dir), os.Rename(unfinished, s.dir))
}

// fetch downloads the packages of a release to the directory archives, with an
// apt whose state is below the directory and nothing of this machine's.
func fetch(ctx context.Context, r Release, set Set, dir string) error {
	apt := func(program string, args ...string) (string, error) {
		options := []string{
			"-o", "Dir::State=" + dir, "-o", "Dir::State::status=" + dir + "/status",
			"-o", "Dir::Cache=" + dir, "-o", "Dir::Cache::archives=archives",
			"-o", "Dir::Etc::sourcelist=" + dir + "/debian.sources",
			"-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::Etc::preferencesparts=/dev/null",
			"-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
			"-o", "APT::Sandbox::User=root", "-o", "APT::Architecture=" + r.Arch, "-o", "APT::Architectures=" + r.Arch, "-qq",
		}
		cmd := exec.CommandContext(ctx, program, append(options, args...)...)
		cmd.Dir = filepath.Join(dir, "archives")
		return output(cmd)
	}
	for _, d := range []string{"archives/partial", "lists/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	sources, err := sources(ctx, r)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{"debian.sources": sources, "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if _, err := apt("apt-get", "update"); err != nil {
		return err
	}
	// Without what the kernel depends on, which are the tools that install it.
	kernelPackage := "linux-image-cloud-" + r.Arch
	depends, err := apt("apt-cache", "depends", "--important", kernelPackage)
	if err != nil {
		return err
	}
	_, image, ok := strings.Cut(depends, "Depends: ")
	if !ok {
		return fmt.Errorf("%s depends on no kernel: %s", kernelPackage, depends)
	}
	if _, err := apt("apt-get", "download", strings.TrimSpace(image)); err != nil {
		return err
	}
	_, err = apt("apt-get", slices.Concat([]string{"install", "-y", "--download-only", "--no-install-recommends"}, base, set.Packages)...)
	return err
}

// sources returns the sources of a release, from where this machine has those
// of its own.
func sources(ctx context.Context, r Release) (string, error) {
	own, err := output(exec.CommandContext(ctx, "sh", "-c", `. /etc/os-release && echo "$VERSION_CODENAME"`))
	if err != nil {
		return "", err
	}
	own = strings.TrimSpace(own)
	targets, err := output(exec.CommandContext(ctx, "apt-get", "indextargets",
		"--format", "$(ORIGIN) $(REPO_URI) $(CODENAME)", "Created-By: Packages", "Component: main"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(targets) {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != "Debian" {
			continue
		}
		switch suffix := strings.TrimPrefix(words[2], own); suffix {
		case "", "-updates", "-security":
			fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n\n",
				words[1], r.Codename+suffix, keyring)
		}
	}
	if b.Len() == 0 {
		return "", errors.New(`apt knows no source of Debian packages: run this on Debian, after "apt-get update"`)
	}
	return b.String(), nil
}
