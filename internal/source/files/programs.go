package files

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Health checks of type exec run programs as the user of this process. So the file that names a
// program, and the program itself, must be safe from other users, as crontabs of root are (3.73).

// leaveOutPrograms leaves out the checks whose file or program other users can change, each with a
// warning. The Services themselves are served.
func (in *Input) leaveOutPrograms() {
	unchecked := make(map[*model.Service]*model.Service)
	for o := range in.contents.all() {
		if s := o.service; s == nil || s.Check == nil || s.Check.Type != model.CheckExec {
			continue
		}
		sources := []string{o.File, o.service.Check.Command[0]}
		for _, of := range o.rareDetails().with { // the check may be theirs
			sources = append(sources, of.File)
		}
		for _, source := range sources {
			if err := checkOwners(source); err != nil {
				s := *o.service
				s.Check, unchecked[o.service] = nil, &s
				in.Warnings = append(in.Warnings, &manifest.Error{Place: o.Place, Object: o.id.String(), Err: err})
				break
			}
		}
	}
	for i, s := range in.Snapshot.Services {
		if s, ok := unchecked[s]; ok {
			in.Snapshot.Services[i] = s
		}
	}
}

const writableByOthers = 0o022

const leftOutCheck = "the health check is left out, and all servers are used, because its program would run with the rights of nftproxy and "

// checkOwners returns an error if users other than root and the one of this process can change a file,
// or have its path lead to another one: by a directory, or a link, on the way.
func checkOwners(file string) error {
	path, err := filepath.Abs(file)
	if err != nil || file == displayName(standardInput) {
		return err
	}
	way := make(watched)
	way.followPath(path)
	for _, name := range slices.Sorted(maps.Keys(way)) {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			// Of a directory with the sticky bit, others cannot replace a file, but create one.
			if info, err = os.Lstat(filepath.Dir(name)); err == nil && info.Mode()&writableByOthers != 0 {
				return fmt.Errorf(leftOutCheck+"other users can create %s: keep programs in a directory of root", name)
			}
		}
		if err == nil && isOthers(info) {
			return fmt.Errorf(leftOutCheck+"other users can change %s: run \"chown root %[1]s; chmod go-w %[1]s\"", name)
		}
	}
	return nil
}

// isOthers reports whether users other than root and the one of this process can change a file, or
// the names in a directory. The mode of a link has no meaning.
func isOthers(info fs.FileInfo) bool {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	shared := info.Mode()&writableByOthers != 0 && info.Mode()&fs.ModeSymlink == 0 && !(info.IsDir() && info.Mode()&fs.ModeSticky != 0)
	return shared || owner != 0 && owner != os.Geteuid()
}
