package kubelets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const cgroupRoot = "/sys/fs/cgroup"

// unified reports whether the machine has cgroups of version 2 alone.
func unified() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}

// cgroupHierarchies returns the directories that have controllers: one for each
// with version 1, the root itself with version 2.
func cgroupHierarchies() ([]string, error) {
	if unified() {
		return []string{cgroupRoot}, nil
	}
	return filepath.Glob(cgroupRoot + "/*")
}

// makeCgroups makes the cgroups above those of the node's pods.
func (n *Node) makeCgroups() error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		for _, dir := range []string{n.c.cgroups, filepath.Join(n.c.cgroups, n.Name)} {
			dir = filepath.Join(h, dir)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if err := inherit(dir); err != nil {
				return fmt.Errorf("make cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}

// inherit makes the controllers of the parent usable: of version 1, cpuset begins
// empty; of version 2, the parent has to delegate them.
func inherit(dir string) error {
	parent := filepath.Dir(dir)
	if unified() {
		return os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+cpu +cpuset +io +memory +pids"), 0)
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			break // a hierarchy of other controllers
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes a directory of all hierarchies, once its processes have
// ended.
func removeCgroups(name string) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := removeTree(filepath.Join(h, name)); err != nil {
			return err
		}
	}
	return nil
}

func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Reverse(dirs)
	for _, d := range dirs {
		// The kernel counts a process that was killed for a moment longer.
		err := await.Poll(await.Patience, 100*time.Millisecond, func() error {
			if err := os.Remove(d); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
