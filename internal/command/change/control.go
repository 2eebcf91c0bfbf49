// Package change has the commands that take servers out of service and change them: drain, set, add, remove and the like.
package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/control/client"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/source/rewrite"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// controlOptions are the flags of the commands that change servers of Balances.
type controlOptions struct {
	action, socket    string
	output            cli.Output
	files             []string
	write, force, all bool
}

const (
	controlAbout = `
The running nftproxy makes the change, without an edit of the file. The kernel has it
when the command ends, and it outlasts restarts.
"nftproxy status", "describe" and "diff" show it. "nftproxy undo" ends it, and so
does an edit of the same server in the file; edits of other servers do not.
With --write, the file gets the change: comments, order and layout stay.
`
	controlExit = `
A repeated command changes nothing and is no error: -o json says whether something
has changed.

Exit code: 0 done, or nothing to do; 2 error, and nothing has changed.`
)

func SetCommand() *cobra.Command {
	return controlCommand(api.ControlSet, &cobra.Command{
		Use:   "set [BALANCE SERVER weight=N]",
		Short: "Change the weight of a server of a Balance, or list such changes",
		Long: `Change the share of new connections that a server of a Balance gets: the weight,
0 to 100, relative to the other servers. SERVER is an address, or an address with a
port. Without arguments, list the changes by command.
` + controlAbout + controlExit,
		Example: `  nftproxy set web 10.1.1.2 weight=3
  nftproxy set shop/web '[fd00::2]:8080' weight=0
  nftproxy set web 10.1.1.2 weight=3 --write
  nftproxy set web 10.1.1.2 weight=3 -o json | jq .changed
  nftproxy set`,
	})
}

func AddCommand() *cobra.Command {
	return controlCommand(api.ControlAdd, &cobra.Command{
		Use:   "add BALANCE SERVER [weight=N]",
		Short: "Add a server to a Balance",
		Long: `Add a server to a Balance. Without a port, it serves the ports that clients use. If the
Balance has the server, it gets the weight of the command. Health checks begin at once:
the server takes connections like one in the file.
` + controlAbout + controlExit,
		Example: `  nftproxy add web 10.1.1.4:8080
  nftproxy add shop/web 10.1.1.4:8080 weight=2
  nftproxy add web 10.1.1.4:8080 --write`,
	})
}

func RemoveCommand() *cobra.Command {
	return controlCommand(api.ControlRemove, &cobra.Command{
		Use:   "remove BALANCE SERVER",
		Short: "Remove a server from a Balance",
		Long: `Remove a server from a Balance. Established connections are treated as those to a
server that leaves the file: see onFailure. "nftproxy disable" keeps the server and its
connections. The last server that takes connections stays, unless --force is given.
` + controlAbout + controlExit,
		Example: `  nftproxy remove web 10.1.1.2
  nftproxy remove web 10.1.1.2:8080 --write`,
	})
}

const drainedAbout = `
The server is an entry of the list of "nftproxy drain" for this Balance alone: the list
outlasts restarts and edits of the file, and "nftproxy drain" shows it.
`

func DisableCommand() *cobra.Command {
	return controlCommand(api.ControlDisable, &cobra.Command{
		Use:   "disable BALANCE SERVER",
		Short: "Keep new connections of a Balance away from a server",
		Long: `Keep new connections of one Balance or Service away from a server. Established
connections stay. The last server that takes connections stays enabled, unless --force
is given. "nftproxy drain" does it for all Balances, and waits for connections.
` + drainedAbout + controlExit,
		Example: `  nftproxy disable web 10.1.1.2
  nftproxy enable web 10.1.1.2`,
	})
}

func EnableCommand() *cobra.Command {
	return controlCommand(api.ControlEnable, &cobra.Command{
		Use:   "enable BALANCE SERVER",
		Short: "Let a disabled server take new connections of a Balance again",
		Long: `End what "nftproxy disable" or "nftproxy drain --service" began.
` + drainedAbout + controlExit,
		Example: `  nftproxy enable web 10.1.1.2
  nftproxy enable shop/web '[fd00::2]:8080'`,
	})
}

func UndoChangesCommand() *cobra.Command {
	return controlCommand(api.ControlUndo, &cobra.Command{
		Use:   "undo BALANCE [SERVER] | --all",
		Short: "End changes of servers, so that the file alone counts",
		Long: `End what "nftproxy set", "add" and "remove" have changed: of a server, of a Balance,
or of all. Disabled servers stay disabled: "nftproxy enable" ends that.
` + controlExit,
		Example: `  nftproxy undo web 10.1.1.2
  nftproxy undo web
  nftproxy undo --all`,
	})
}

func controlCommand(action string, c *cobra.Command) *cobra.Command {
	o := &controlOptions{action: action}
	f := c.Flags()
	f.StringVar(&o.socket, "control-socket", config.DefaultControlSocket, "unix `socket` of the running nftproxy")
	o.output.Add(c, "")
	switch action {
	case api.ControlSet, api.ControlAdd, api.ControlRemove:
		f.BoolVar(&o.write, "write", false, "also write the change into the file of the Balance")
		f.StringArrayVarP(&o.files, "filename", "f", nil, "with --write: `file` or directory with the Balance (default: the ones of the running nftproxy)")
	case api.ControlUndo:
		f.BoolVar(&o.all, "all", false, "all changes, also if the file with them cannot be used")
	}
	switch action {
	case api.ControlSet, api.ControlRemove, api.ControlDisable:
		f.BoolVar(&o.force, "force", false, "also the last server that takes connections")
	}
	c.ValidArgsFunction = completeServer
	c.RunE = func(c *cobra.Command, args []string) error { return o.run(c, args) }
	return c
}

func completeServer(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return command.CompleteServices(c, args, begin)
	case 1:
		return command.CompleteEndpoints(c, nil, begin)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (o *controlOptions) run(c *cobra.Command, args []string) error {
	request, err := o.request(args)
	if err := errors.Join(err, o.checkFlags()); err != nil {
		return err
	}
	asked := client.NewClient(o.socket)
	defer asked.Close()
	answer, err := asked.Do(c.Context(), request)
	switch {
	case err == nil && o.write:
		if err = o.writeFile(request, answer, command.SourcesOf(host.ProcessWith(asked.Peer().PID))); err == nil {
			err = awaitFile(c.Context(), asked, request, answer)
		}
	case errors.Is(err, client.ErrNoSocket) && o.write && len(o.files) > 0:
		answer = &api.Controlled{Balance: request.Balance, Changes: []model.RuntimeChange{}}
		err = o.writeFile(request, answer, nil)
	}
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), answer, func(w io.Writer) error { return show.Controlled(w, request, answer, o.output.Paint) })
}

func (o *controlOptions) checkFlags() error {
	if len(o.files) > 0 && !o.write {
		return errors.New("-f names the file to write: add --write")
	}
	return nil
}

func (o *controlOptions) request(args []string) (*api.Control, error) {
	r := &api.Control{Action: o.action, Force: o.force}
	switch {
	case o.action == api.ControlSet && len(args) == 0 && !o.write:
		r.Action = api.ControlList
		return r, nil
	case o.all && len(args) == 0:
		return r, nil
	case o.all:
		return nil, errors.New("--all is for undo without a Balance")
	case len(args) == 0 && o.action == api.ControlUndo:
		return nil, errors.New("name a Balance, or all of them with --all")
	case len(args) < 2 && o.action != api.ControlUndo:
		return nil, fmt.Errorf("name a Balance and a server: nftproxy %s web 10.1.1.2%s", o.action, map[string]string{api.ControlSet: " weight=3"}[o.action])
	}
	r.Balance = args[0]
	if len(args) > 1 {
		r.Server = args[1]
		if _, err := drain.ParseServer(r.Server); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
	}
	return r, o.settings(r, args[min(len(args), 2):])
}

// settings reads arguments like weight=3.
func (o *controlOptions) settings(r *api.Control, args []string) error {
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		switch {
		case o.action != api.ControlSet && o.action != api.ControlAdd:
			return fmt.Errorf("%q is one argument too many", a)
		case name != "weight":
			hint := cmp.Or(suggest.DidYouMean(suggest.Similar(name, []string{"weight"})), ": write for example weight=3")
			return fmt.Errorf("%q is not a setting of a server%s", name, hint)
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > drain.MaxWeight {
			return fmt.Errorf("weight: %q is not a weight: use 0 to %d", value, drain.MaxWeight)
		}
		r.Weight = &n
	}
	if o.action == api.ControlSet && r.Weight == nil {
		return errors.New("weight: missing: write for example weight=3")
	}
	return nil
}

// writeFile makes the change in the file of the Balance, which is one of the sources: an answer names none.
func (o *controlOptions) writeFile(r *api.Control, answer *api.Controlled, sources []string) error {
	paths := sources
	if len(o.files) > 0 {
		paths = o.files
	}
	if len(paths) == 0 {
		return errors.New("--write: the running nftproxy reads no file that can be written: name one with -f")
	}
	name, err := drain.ParseService(cmp.Or(answer.Balance, r.Balance))
	if err != nil {
		return err
	}
	t, err := drain.ParseServer(r.Server)
	if err != nil {
		return err
	}
	change := rewrite.Change{Balance: name, Address: t.Address, Port: t.Port, Weight: r.Weight, Add: o.action == api.ControlAdd, Remove: o.action == api.ControlRemove}
	path, changed, err := rewrite.Write(paths, change, checkContent(paths))
	if err != nil {
		if answer.Changed {
			err = fmt.Errorf("the running nftproxy has the change, and \"nftproxy undo %s %s\" ends it: %w", answer.Balance, r.Server, err)
		}
		return err
	}
	answer.Balance = name.String()
	if answer.File, err = filepath.Abs(path); err != nil {
		answer.File = path
	}
	answer.Changed = answer.Changed || changed
	return nil
}

// fileTimeout is how long the running nftproxy may take to read a file that was written, and
// filePause the time between two questions.
const (
	fileTimeout = 10 * time.Second
	filePause   = 5 * time.Millisecond
)

// awaitFile waits until the running nftproxy has read the file that was written, so that the next
// command finds the server as it is there: the temporary change has ended then.
func awaitFile(ctx context.Context, asked *client.Client, r *api.Control, answer *api.Controlled) error {
	reads := func(source string) bool {
		return answer.File == source || strings.HasPrefix(answer.File, strings.TrimSuffix(source, "/")+"/")
	}
	if !slices.ContainsFunc(answer.Sources, reads) {
		return nil
	}
	for deadline := time.Now().Add(fileTimeout); ; {
		list, err := asked.Do(ctx, &api.Control{Action: api.ControlList, Balance: answer.Balance})
		if err != nil {
			return err
		}
		answer.Changes = list.Changes
		if !slices.ContainsFunc(list.Changes, func(c model.RuntimeChange) bool { return names(r.Server, c.Server) }) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is written, but the running nftproxy has not read it after %s: see \"nftproxy status\"", answer.File, fileTimeout)
		}
		if !parallel.Wait(ctx, filePause) {
			return ctx.Err()
		}
	}
}

// names reports whether an argument stands for a server.
func names(argument, server string) bool {
	a, errA := drain.ParseServer(argument)
	s, errS := drain.ParseServer(server)
	return errA == nil && errS == nil && a.Address == s.Address && (a.Port == 0 || a.Port == s.Port)
}

// checkContent returns a function that returns an error if the content of one of some files would
// not be valid beside the others, which may have mistakes of their own.
func checkContent(paths []string) func(path string, content []byte) error {
	return func(path string, content []byte) error {
		_, err := (&files.Reader{Paths: paths, Instead: map[string][]byte{path: content}}).Load()
		var problems manifest.Errors
		if !errors.As(err, &problems) {
			return err
		}
		problems = slices.DeleteFunc(problems, func(p *manifest.Error) bool { return p.File != path })
		if len(problems) == 0 {
			return nil
		}
		return problems
	}
}
