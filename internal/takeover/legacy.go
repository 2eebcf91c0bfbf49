package takeover

import (
	"errors"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/xtables"
)

// reportLegacy reports chains of kube-proxy in the tables of iptables-legacy, which are
// separate from nf_tables. The kernel accepts such a table only as a whole, in a
// format of the iptables commands, which the image does not contain.
func (r *report) reportLegacy(s system, f family) {
	tables, err := s.legacyTables(f)
	r.addFailure(err, "chains of kube-proxy from %stables-legacy", f.name)
	if len(tables) > 0 {
		r.addFailure(errors.New("nftproxy cannot change these tables: run \"kube-proxy --cleanup\" from the image of kube-proxy, or restart the node"),
			"chains of kube-proxy from %s of %stables-legacy", strings.Join(tables, ", "), f.name)
	}
}

// legacyTables returns the tables that have chains of kube-proxy.
func (s system) legacyTables(f family) (found []string, err error) {
	present, err := xtables.Tables(s.root, xtables.Family(f.name))
	if err != nil {
		return nil, err
	}
	for _, name := range iptablesTables {
		if !slices.Contains(present, name) {
			continue
		}
		t, readErr := xtables.Read(xtables.Family(f.name), name)
		if err = errors.Join(err, readErr); readErr == nil && slices.ContainsFunc(t.Chains(), IsKubeProxy) {
			found = append(found, name)
		}
	}
	return found, err
}
