// Package footprint lists what nftproxy leaves on a machine outside of its tables: how each kind is marked,
// what restores it, and what removes it. "nftproxy cleanup" walks the list, which docs/footprint.md prints.
package footprint

import (
	"errors"
	"log/slog"

	"github.com/nftproxy/nftproxy/internal/feature"
)

// Remove removes all kinds that "nftproxy cleanup" removes, and continues after a failure. The directory is the runtime directory of
// the daemon.
func Remove(directory string, log *slog.Logger) (removed []string, err error) {
	s := feature.Scope{Runtime: directory, Log: log}
	s.HealthDirectory = func() (string, func(), error) {
		r, err := openRecord(s)
		if r == nil {
			return "", nil, err
		}
		return r.has.HealthDirectory, func() { r.HealthDirectory("") }, nil
	}
	for _, k := range Kinds {
		if k.Remove == nil {
			continue
		}
		some, failure := k.Remove(s)
		removed, err = append(removed, some...), errors.Join(err, failure)
	}
	return removed, err
}
