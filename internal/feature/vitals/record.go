package vitals

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// recordName is the file of announced addresses in the runtime directory, which lasts as long as they:
// until the machine ends.
const recordName = "addresses.json"

// RecordIn returns the path of the record in a runtime directory; empty: there is none.
func RecordIn(directory string) string {
	if directory == "" {
		return ""
	}
	return filepath.Join(directory, recordName)
}

// record is about the addresses that are ours, for kernels whose addresses have no marks, and for
// addresses that were there before a Balance asked for them.
type record struct {
	path  string // empty: there is no file
	known map[place]bool
	ready bool
}

type entry struct {
	place
	Marked bool `json:"marked,omitempty"` // in the kernel: without the mark, it is another one
}

// read reads the file, once.
func (r *record) read() error {
	if r.ready {
		return nil
	}
	r.ready, r.known = true, make(map[place]bool)
	if r.path == "" {
		return nil
	}
	data, err := atomicfile.Read(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []entry
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("read %s: %w", r.path, err)
	}
	for _, e := range all {
		r.known[e.place] = e.Marked
	}
	return nil
}

// has reports whether an address of the machine is in the record.
func (r *record) has(p place, is host.LinkAddress) bool {
	marked, known := r.known[p]
	return known && (!marked || is.Marked)
}

// intend notes an address before it is added.
func (r *record) intend(p place) error {
	if _, known := r.known[p]; known {
		return nil
	}
	all := maps.Clone(r.known)
	all[p] = false
	return r.write(all)
}

// write makes the record have these addresses, and whether they are marked.
func (r *record) write(all map[place]bool) (err error) {
	switch {
	case maps.Equal(all, r.known):
		return nil
	case r.path == "":
	case len(all) == 0:
		err = atomicfile.Remove(r.path)
	default:
		var list []entry
		for p, marked := range all {
			list = append(list, entry{p, marked})
		}
		slices.SortFunc(list, func(a, b entry) int {
			return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
		})
		data, _ := json.Marshal(list) // these types cannot fail
		err = atomicfile.Write(r.path, data, filePermissions)
	}
	if err == nil {
		r.known = all
	}
	return err
}

// RemoveAddresses removes all addresses that a process of nftproxy has left, also from the record, and
// says which. Addresses that are not here stay in the record: they may be in another network namespace.
func RemoveAddresses(links Links, path string) (removed []string, err error) {
	r := record{path: path}
	err = r.read()
	addresses, all, listErr := links.List()
	if listErr != nil {
		return nil, errors.Join(err, listErr)
	}
	left := maps.Clone(r.known)
	for p, is := range addresses {
		if !is.Marked && !r.has(p, is) {
			continue
		}
		if failure := links.Remove(all[p.Interface].Index, p.Address); failure != nil {
			err = errors.Join(err, fmt.Errorf("remove address %s from interface %s: %w", p.Address, p.Interface, failure))
			continue
		}
		delete(left, p)
		removed = append(removed, fmt.Sprintf("address %s from interface %s", p.Address, p.Interface))
	}
	slices.Sort(removed)
	return removed, errors.Join(err, r.write(left))
}

// stateOf returns the state of a Balance on this node.
func stateOf(v *model.View) State {
	serving := served.ServingOf(v)
	state := State{Usable: serving.Usable, Servers: serving.Servers, Link: v.Service.Extra().Announce}
	if state.Link != "" && v.Service.External != nil {
		state.Addresses = v.Service.External.LoadBalancerIPs
	}
	return state
}

// places returns where the addresses of a Balance belong.
func (s State) places() (all []place) {
	if s.Link == "" {
		return nil
	}
	for _, a := range s.Addresses {
		all = append(all, place{Interface: s.Link, Address: a})
	}
	return all
}

// actionFor returns what is to be done about an address that belongs to nftproxy: whether a Balance wants it now, and
// how the machine has it. One with a network was added by another program.
func actionFor(wanted, on bool, is host.LinkAddress) feature.AddressAction {
	switch {
	case wanted && !on:
		return feature.AddAddress
	case !wanted && on && !is.Network:
		return feature.RemoveAddress
	}
	return feature.NoAction
}

// CompareAddresses implements [feature.Comparer] as a running nftproxy compares them.
func (Kind) CompareAddresses(balances []*model.View, runtimeDirectory string, keeps bool, log *slog.Logger) ([]feature.AddressChange, error) {
	r := record{path: RecordIn(runtimeDirectory)}
	links := host.Neighbourhood{Log: log}
	err := r.read()
	on, _, listErr := links.List()
	if err := errors.Join(err, listErr); err != nil {
		return nil, err
	}
	wanted := make(map[place]bool)
	for p, is := range on {
		if !keeps && (is.Marked || r.has(p, is)) {
			wanted[p] = false
		}
	}
	for _, v := range balances {
		s := stateOf(v)
		for _, p := range s.places() {
			wanted[p] = wanted[p] || s.serves()
		}
	}
	var all []feature.AddressChange
	for p, wants := range wanted {
		is, there := on[p]
		if action := actionFor(wants, there, is); action != feature.NoAction {
			all = append(all, feature.AddressChange{Action: action, Address: p.Address, Interface: p.Interface})
		}
	}
	slices.SortFunc(all, func(a, b feature.AddressChange) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
	})
	return all, nil
}

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
