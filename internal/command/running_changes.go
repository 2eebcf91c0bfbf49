package command

import (
	"fmt"
	"log/slog"

	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// changed returns the servers that commands have changed here: as the running nftproxy says,
// unless a flag names a file, or else as the file has them.
func (o *Options) changed(own *config.Own) (drain.Changes, error) {
	if b := o.Running.basis; b != nil && !o.Settings.Given(config.DrainFile) && !o.Settings.Given(config.ChangesFile) {
		l, err := drain.ChangesOf(common.EntriesOf(b.Changes))
		if err != nil {
			return nil, fmt.Errorf("read the runtime changes of the running nftproxy: %w", err)
		}
		return l, nil
	}
	return drain.ReadChanges(own.DrainFile, own.ChangesFile)
}

// withChanges returns the snapshot with the servers that commands have changed, as far as the
// input has them as they were.
func (o *Options) withChanges(log *slog.Logger, s *model.Snapshot) *model.Snapshot {
	s, held := o.changes.EditSnapshot(s)
	if n := held.Len(); n > 0 {
		log.Warn(fmt.Sprintf("the rules have %s that no file has (%s): \"nftproxy undo\" ends them",
			terminal.Count(n, "runtime change"), terminal.List(held.Texts(), namedEndpoints)))
	}
	return s
}
