package command

import (
	"fmt"

	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
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
