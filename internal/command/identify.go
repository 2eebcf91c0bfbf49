package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/control"
	"github.com/nftproxy/nftproxy/internal/host"
)

// door is the control socket of an nftproxy in this network namespace.
type door struct {
	name, path string
	check      func(control.Peer) error // returns an error unless the process at the socket is that nftproxy
	err        error                    // why there is no socket
	guessed    bool                     // no process is known to have it
}

// errNotHere means that no nftproxy listens where one may.
var errNotHere = errors.New("no nftproxy listens there")

// client returns a client of the nftproxy behind the socket.
func (d *door) client() *api.Client {
	return api.NewSocketClient(d.name, func(ctx context.Context) (net.Conn, error) {
		if d.err != nil {
			return nil, d.err
		}
		c, err := control.Dial(ctx, d.path, d.check)
		if err != nil && d.guessed {
			return nil, errNotHere
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("it has no socket %s: it starts, is older than this command, or has no directory for it; --metrics-bind-address reads its pages without a proof of whose they are", d.path)
		}
		return c, err
	})
}

// askIdentified calls f with clients of an nftproxy whose process this one has identified, until one
// answers, as [api.Ask] does. With a given address it asks the nftproxy that is configured to serve it,
// at its socket.
func askIdentified(given netip.AddrPort, f func(*api.Client) error) error {
	var failed []error
	for d := range doors(given) {
		err := d.client().Use(f)
		if !errors.Is(err, api.ErrNoDaemon) {
			return err
		}
		if !errors.Is(err, errNotHere) {
			failed = append(failed, err)
		}
	}
	switch {
	case len(failed) > 0:
		return errors.Join(failed...)
	case given.IsValid():
		return fmt.Errorf("%w at %s (no nftproxy that could be identified serves it)", api.ErrNoDaemon, given)
	}
	return fmt.Errorf("%w: no nftproxy runs in this network namespace", api.ErrNoDaemon)
}

// doors yields the sockets to ask: those at the default paths here, else those of the processes that may
// be a running nftproxy, the owner of the tables first. A process is found by its name, and asked because
// of what it may do.
func doors(given netip.AddrPort) iter.Seq[door] {
	return func(yield func(door) bool) {
		if !given.IsValid() && !(yield(doorHere(control.DefaultPath())) && yield(doorHere(config.DefaultControlSocket))) {
			return
		}
		for _, p := range daemons() {
			if d, ok := doorOf(p, given); ok && !yield(d) {
				return
			}
		}
	}
}

// doorHere returns the socket that a process may have in a directory of root. It is asked if it may change
// the rules of this network namespace.
func doorHere(path string) door {
	return door{name: path, path: path, guessed: true, check: func(peer control.Peer) error {
		return cmp.Or(control.CheckDirectory(path), peer.CheckUser(), host.ProcessWith(peer.PID).CheckControl())
	}}
}

// doorOf returns the socket of a process, as its root directory has it; false: it is not "nftproxy run",
// or has another address than the given one.
func doorOf(p host.Process, given netip.AddrPort) (door, bool) {
	flags, unknown := runFlagsOf(p)
	if flags == nil {
		return door{}, false
	}
	if given.IsValid() {
		at, err := metricsAddress(p)
		if err != nil || at.Port() != given.Port() || at.Addr() != given.Addr() && !at.Addr().IsUnspecified() {
			return door{}, false
		}
	}
	d := door{name: "process " + p.String()}
	if shared, err := p.SharesNetwork(); err == nil && !shared {
		d.err = elsewhere(p)
	} else if d.err = p.CheckControl(); d.err == nil {
		d.path, d.err = socketOf(p, flags, unknown)
	}
	d.check = func(peer control.Peer) error {
		if peer.PID != p.PID {
			return fmt.Errorf("process %d of user %d listens at %s, and is not asked", peer.PID, peer.UID, d.path)
		}
		return p.CheckControl()
	}
	return d, true
}

// socketOf returns the path of the control socket of a process with these flags, or an error about them.
func socketOf(p host.Process, flags *RunFlags, unknown error) (string, error) {
	given := ""
	if unknown == nil { // else it has the default path, or another one that is not known
		given = flags.Settings.ControlSocket()
	}
	switch runtime := firstDirectory(p.Variable("RUNTIME_DIRECTORY")); {
	case given == config.NoControlSocket:
		return "", errors.New("it has no socket: start it without --control-socket=none")
	case given != "":
		return p.Path(given), nil
	case runtime != "":
		return p.Path(filepath.Join(runtime, control.Name)), nil
	}
	return p.Path(control.DefaultPath()), nil
}

// SourcesOf returns the absolute paths of the files that a process reads; none: it is not "nftproxy run".
func SourcesOf(p host.Process) (files []string) {
	o, unknown := runFlagsOf(p)
	if o == nil || unknown != nil {
		return nil
	}
	directory, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.PID))
	if err != nil {
		return nil
	}
	for _, f := range o.Files {
		if f == "-" {
			continue
		}
		if !filepath.IsAbs(f) {
			f = filepath.Join(directory, f)
		}
		files = append(files, filepath.Clean(f))
	}
	return files
}

// RuntimeDirectory returns the runtime directory of the nftproxy that runs here: a shell has no variable of systemd.
func RuntimeDirectory() string {
	return cmp.Or(ServiceDirectory("RUNTIME_DIRECTORY"), control.DefaultDirectory)
}

// ServiceDirectory returns the directory of a kind that systemd has made for this service, or
// nothing.
func ServiceDirectory(variable string) string { return firstDirectory(os.Getenv(variable)) }

// firstDirectory returns the first directory of such a variable.
func firstDirectory(list string) string {
	first, _, _ := strings.Cut(list, ":")
	return first
}
