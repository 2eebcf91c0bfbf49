package footprint

import (
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/table"
)

// Kinds are all kinds, in the order of the page, which is the one in which "nftproxy cleanup" removes them: what features
// leave, such as tables with rules for forwarded packets, before settings, which stay where another program has such rules.
var Kinds = append(ofFeatures(), []feature.Leftover{
	{
		Name: "forwarding", What: "`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`, and with it `accept_ra` of interfaces; with `--manage-sysctl` ([12.76](behaviour.md#s12.76))",
		Mark:     "`left.json` in the runtime directory has the former value",
		Restored: "when a Service changes, when the status or metrics are read, every hour, and when rules are repaired: turned on again",
		Removed:  "`cleanup` restores the former value, unless another program has changed it, or has rules for forwarded packets or for NAT: it says so then, with the command",
		Writers:  []string{"internal/host/system.go", "internal/footprint/record.go"}, Remove: restoreForwarding,
	},
	{
		Name: "conntrack settings", What: "`net.netfilter.nf_conntrack_*` and the size of the hash table, as configured ([9.13](behaviour.md#s9.13)); by default with an API server only",
		Mark:     "`left.json` in the runtime directory has the former value",
		Restored: "at the start, every hour, and when rules are repaired",
		Removed:  "`cleanup`, as above",
		Writers:  []string{"internal/host/system.go", "internal/footprint/record.go"}, Remove: restoreConntrack,
	},
	{
		Name: "records", What: "`rules.json` in the runtime directory: what the kernel holds, for the next start ([13.30](behaviour.md#s13.30))",
		Mark:     "its name",
		Restored: "read and removed at the start, and not used unless it is right",
		Removed:  "`cleanup`",
		Writers:  []string{"internal/daemon/record.go"}, Remove: removeRecord,
	},
	{
		Name: "sockets", What: "`control.sock` in the runtime directory, or `/run/nftproxy/net-NAMESPACE.sock`, of a process that was killed",
		Mark:     "their names, and that no process listens",
		Restored: "made at the start",
		Removed:  "the end of the process; any start in the same directory; `cleanup`",
		Writers:  []string{"internal/control/socket.go"}, Remove: removeSockets,
	},
	{
		Name: "runtime directory", What: "`/run/nftproxy`, if systemd or the runtime of containers has not made it",
		Mark:     "its name",
		Restored: "made at the start",
		Removed:  "`cleanup`, if nothing else is in it but what killed processes had begun to write",
		Writers:  []string{"internal/control/socket.go"}, Remove: removeDirectory,
	},
	{
		Name: "state files", What: "in the state directory: what commands have changed (`drain.yaml`), a copy of the drained endpoints (`drain.yaml.last`), the last valid content of files (`valid`), the last answers of DNS (`names.json`)",
		Mark:     "their names",
		Restored: "with the next change",
		Removed:  "purging the Debian package; else `rm -r /var/lib/nftproxy`. `cleanup` leaves them: they have decisions of the operator",
		Writers:  []string{"internal/drain/file.go", "internal/source/files/kept.go", "internal/feature/names/kept.go"},
	},
	{
		Name: "connections", What: "entries of connection tracking, with the translation of established connections",
		Mark:     "the translation",
		Restored: "entries of endpoints that are gone are deleted ([13.21](behaviour.md#s13.21))",
		Removed:  "the end of the connection, or its timeout. `cleanup` leaves them: established connections continue",
		Writers:  []string{"internal/conntrack/netlink.go"},
	},
	{
		Name: "events", What: "events in the API server ([12.56](behaviour.md#s12.56))",
		Mark:     "the controller `nftproxy`",
		Restored: "never",
		Removed:  "the API server, after an hour by default",
		Writers:  []string{"internal/events/events.go"},
	},
	{
		Name: "test namespaces", What: "namespaces of the API server in which `kubectl nftproxy test`, `converge` and others work, if the command was killed",
		Mark:     "a label and the prefix of the name",
		Restored: "never",
		Removed:  "the end of the command; the next run of it, after the time that the first one had",
		Writers:  []string{"internal/kubectl/scratch.go", "internal/fleet/converge_probe.go", "internal/fleet/peers/lab.go"},
	},
	{
		Name: "files of the operator", What: "what a command line names: files of Balances and of drained endpoints, `--write-config-to`, archives of `bundle`",
		Mark:     "the name",
		Restored: "never: nftproxy follows them",
		Removed:  "the operator",
		Writers:  []string{"internal/source/rewrite/rewrite.go", "internal/drain/file.go", "internal/config/config.go", "internal/cli/common/bundle.go"},
	},
}...)

// ofFeatures returns what features leave.
func ofFeatures() (all []feature.Leftover) {
	for _, row := range table.Rows {
		if l, ok := row.Kind.(feature.Leaver); ok {
			all = append(all, l.Leaves()...)
		}
	}
	return all
}
