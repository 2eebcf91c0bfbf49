package look

import (
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/model"
)

// fastPathNotes says whether established connections to a frontend take the fast path of the
// kernel now. Without a fast path there is nothing to say.
func fastPathNotes(f model.Frontend) []string {
	switch takes, err := fastpath.Takes(f); {
	case err != nil:
		return []string{"whether established connections take the fast path is not known: " + err.Error()}
	case takes:
		return []string{common.TakesFastPath}
	}
	return nil
}
