package importer

import (
	"maps"
	"slices"
	"strings"
)

// fate says how the report treats a line without an equivalent.
type fate int

const (
	remarked fate = iota // connections and checks stay as they are
	differs              // connections are not what the line says
	refused              // a Balance without it would check less, serve more clients, or use other servers
)

// meaning is the fate of lines that begin with a word, or with two.
type meaning struct {
	fate fate
	why  string // what nftproxy does or has instead
}

// meanings have the lines of HAProxy's sections that have no equivalent (its configuration manual,
// section 4.1). A word of an option is after "option ".
var meanings = meaningsOf(
	meaningRow{remarked, "nftproxy observe shows connections, and --log-connections logs them",
		"log log-format log-format-sd log-tag log-steps error-log-format unique-id-format unique-id-header capture email-alert",
		"tcplog httplog httpslog dontlognull dontlog-normal logasap log-separate-errors contstats"},
	meaningRow{remarked, "nftproxy run logs changes of health", "", "log-health-checks"},
	meaningRow{remarked, "nftproxy status and top show them, and the page of --web", "stats", "socket-stats"},
	meaningRow{remarked, "GET /healthz/NAMESPACE/NAME at --healthz-bind-address says whether a Balance has a usable server", "monitor-uri monitor", ""},
	meaningRow{remarked, "nftproxy ends no connection: the kernel forgets an idle one after nf_conntrack_tcp_timeout_established",
		"timeout clitimeout contimeout srvtimeout", ""},
	meaningRow{remarked, "the endpoints of a connection keep it alive, not the balancer",
		"clitcpka-cnt clitcpka-idle clitcpka-intvl srvtcpka-cnt srvtcpka-idle srvtcpka-intvl", "tcpka clitcpka srvtcpka"},
	meaningRow{remarked, "a server that fails its check gets no new connection; relay: true also tries another server, at ten times the cost", "redispatch", "redispatch"},
	meaningRow{remarked, "relay: true tries another server, at ten times the cost", "retries retry-on", ""},
	meaningRow{remarked, "limits belong to addresses of listen, not to servers", "fullconn", ""},
	meaningRow{remarked, "connections are passed on as they are: clientAddresses: keep shows servers the client", "", "forwardfor forwarded originalto"},
	meaningRow{remarked, "connections are passed on as they are: affinity goes by the address of the client", "cookie dynamic-cookie-key", ""},
	meaningRow{remarked, "connections are passed on as they are",
		"errorfile errorfiles errorloc errorloc302 errorloc303 http-error http-request http-response http-after-response http-reuse http-send-name-header redirect compression max-keep-alive-queue max-session-srv-conns",
		"httpclose http-server-close http-keep-alive http-buffer-request http-ignore-probes http-no-delay http-pretend-keepalive http-use-proxy-header http-use-htx accept-invalid-http-request accept-invalid-http-response idle-close-on-response prefer-last-server checkcache h1-case-adjust-bogus-client h1-case-adjust-bogus-server disable-h2-upgrade"},
	meaningRow{remarked, "the kernel moves the data",
		"backlog bind-process", "splice-auto splice-request splice-response nolinger independent-streams tcp-smart-accept tcp-smart-connect abortonclose"},
	meaningRow{remarked, "a name for people", "description id guid", ""},
	meaningRow{remarked, "connections have no content: only lists of client addresses are used", "acl", ""},
	meaningRow{differs, "the clients of it reach a server", "monitor-net", ""},
	meaningRow{differs, "all servers start as enabled, until nftproxy drain or disable", "load-server-state-from-file server-state-file-name", ""},
	meaningRow{differs, "nftables does not count the connections of a server", "hash-balance-factor hash-preserve-affinity", ""},
	meaningRow{refused, "write the address into backends", "dispatch", ""},
	meaningRow{refused, "connections go to servers of a list", "transparent", "transparent"},
	meaningRow{refused, "nftproxy chooses no server by content: a Balance for each address and port does", "use-server force-persist ignore-persist persist", "persist"},
	meaningRow{refused, "nftproxy sees no content, so it filters none", "tcp-response filter", ""},
	meaningRow{refused, "write a check of type exec", "external-check", "external-check"},
	meaningRow{refused, "no check knows this protocol: send and expect of type tcp can, or a program of type exec",
		"", "mysql-check pgsql-check ldap-check smtpchk spop-check ssl-hello-chk"},
)

// meaningRow has words with the same meaning.
type meaningRow struct {
	fate           fate
	why            string
	words, options string
}

func meaningsOf(rows ...meaningRow) map[string]meaning {
	out := map[string]meaning{
		"timeout connect":      {remarked, "the system of the client repeats what a server does not answer; a server that fails its check gets no new connection"},
		"stick match":          {refused, otherTable},
		"stick store-request":  {refused, otherTable},
		"stick store-response": {refused, otherTable},
	}
	for _, r := range rows {
		for word := range strings.FieldsSeq(r.words) {
			out[word] = meaning{r.fate, r.why}
		}
		for word := range strings.FieldsSeq(r.options) {
			out["option "+word] = meaning{r.fate, r.why}
		}
	}
	return out
}

const otherTable = "affinity goes by the address of the client, and learns from no other table"

// isKeyword reports whether lines that begin with a word have an equivalent or a meaning.
func isKeyword(word string) bool {
	keys := slices.Concat(slices.Collect(maps.Keys(keywords)), slices.Collect(maps.Keys(meanings)))
	return word == "no" || slices.ContainsFunc(keys, func(key string) bool { return key == word || strings.HasPrefix(key, word+" ") })
}
