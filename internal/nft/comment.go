package nft

import (
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// MaxComment is the longest comment in bytes that nft accepts for an element
// (NFTNL_UDATA_COMMENT_MAXLEN). The kernel accepts longer ones, but nft could not
// load such a listing.
const MaxComment = 128

// Comment names the service port behind a frontend, and the kind of the
// frontend unless it is the ClusterIP.
func Comment(r *model.Route) string {
	text := clean(r.Port.String())
	if r.Kind != model.ClusterIP {
		suffix := " " + r.Kind.String()
		return cut(text, MaxComment-len(suffix)) + suffix
	}
	return cut(text, MaxComment)
}

// ParseComment reads the comment of an element. It has no protocol, and the name may
// be cut.
func ParseComment(text string) (model.PortName, model.Kind) {
	kind := model.ClusterIP
	for _, k := range []model.Kind{model.LoadBalancerIP, model.ExternalIP, model.NodePort} {
		if name, ok := strings.CutSuffix(text, " "+k.String()); ok {
			text, kind = name, k
		}
	}
	namespace, name, _ := strings.Cut(text, "/")
	name, port, _ := strings.Cut(name, ":")
	return model.PortName{Service: model.ServiceName{Namespace: namespace, Name: name}, Port: port}, kind
}

// clean replaces what a quoted nft string cannot hold. Names that an API server
// accepts contain no such character; those of a file may.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '?'
		}
		return r
	}, s)
}

// cut shortens a text of single-byte characters to n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-3] + "..."
}
