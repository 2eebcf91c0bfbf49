package vitals

import (
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
)

func (Kind) Leaves() []feature.Leftover {
	return []feature.Leftover{
		{
			Name: "addresses", What: "addresses of Balances with `announce`, on interfaces ([10.33](behaviour.md#s10.33))",
			Mark:     "address protocol 78 (Linux 5.18 or later), and `addresses.json` in the runtime directory",
			Restored: "at the start, at each change of an address or interface, every hour, and when rules are repaired: missing ones are added, ones that no Balance wants are removed",
			Removed:  "the Balance's last usable server, its end or its `announce`; `cleanup`",
			Writers:  []string{"internal/host/announced.go", "internal/feature/vitals/record.go"}, Remove: removeAddresses,
		},
		{
			Name: "health files", What: "a file for each Balance in `--health-directory` ([10.31](behaviour.md#s10.31))",
			Mark:     "name and content; `left.json` in the runtime directory has the directory",
			Restored: "every hour, and when rules are repaired: a changed or missing one is written again; at the start, ones of Balances that are gone are removed",
			Removed:  "the end of the Balance; `cleanup`",
			Writers:  []string{"internal/feature/vitals/files.go"}, Remove: removeHealthFiles,
		},
	}
}

func removeAddresses(s feature.Scope) ([]string, error) {
	return RemoveAddresses(host.Neighbourhood{Log: s.Log}, RecordIn(s.Runtime))
}

func removeHealthFiles(s feature.Scope) ([]string, error) {
	directory, forget, err := s.HealthDirectory()
	if directory == "" || err != nil {
		return nil, err
	}
	removed, err := RemoveFiles(directory)
	if err == nil {
		forget()
	}
	return removed, err
}
